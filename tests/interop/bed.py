"""One namespace in which nodes of ours and of others have ports of the loopback."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.testbed.namespace import Namespace, instance_prefix
from tests.testbed.node import Node
from tests.testbed.process import Process
from tests.testbed.profile import PERFECT, Profile
from tests.testbed.topology import Terminal


class LoopbackBed:
    """A context manager; nothing of it remains after its end."""

    profile = PERFECT
    terrestrial_profile: Profile | None = None
    terminals: list[Terminal]

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack = contextlib.ExitStack()
        self.terminals = []
        self.dir = Path(tempfile.mkdtemp(prefix=f"underpass-{name}-"))

    def __enter__(self) -> Self:
        self.hub = Namespace(instance_prefix() + self.name, forwarding=False)
        self.stack.callback(self.hub.delete)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        shutil.rmtree(self.dir)

    def start(self, name: str, argv: Sequence[str], namespace: Namespace | None = None) -> Process:
        """Start a program that ends with it."""
        process = Process(name, argv, log_dir=self.dir, namespace=namespace)
        self.stack.callback(process.stop)
        return process


def paths(node: Node) -> list[dict[str, Any]]:
    """Return a node's paths; none while it starts."""
    try:
        paths: list[dict[str, Any]] = node.status()["paths"]
    except OSError:
        return []
    return paths


def sessions(node: Node) -> list[dict[str, Any]]:
    """Return a node's sessions on all its paths."""
    return [session for path in paths(node) for session in path["sessions"]]


def wait_until_released(node: Node) -> None:
    """Wait until a node has nothing in custody: others have signalled all of it."""
    node.process.wait_until(lambda: node.api.get("/v1/custody")["bundles"] == 0)
