"""The application socket of a node on the test bed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.testbed.node import Node
from tests.testbed.programs import built


def applications(folder: Path, name: str, **keys: object) -> dict[str, object]:
    """Return the configuration of a node with applications, whose socket is at `socket_of`."""
    return {"applications": {"socket": folder / f"{name}-applications.sock", **keys}}


def socket_of(node: Node) -> Path:
    """Return the path of the socket."""
    return node.config_path.with_name(f"{node.name}-applications.sock")


def bp(node: Node, *args: str, stdin: bytes = b"", timeout_s: float = 60.0) -> list[Any]:
    """Run `underpass bp` at a node; return the JSON that it prints, raise if it fails."""
    command, *rest = args
    argv = [built("underpass"), "bp", command, "--json", "--socket", str(socket_of(node)), *rest]
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{done.stderr.decode()}{done.stdout.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]
