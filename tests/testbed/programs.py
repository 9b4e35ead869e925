"""The paths of the test bed's programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
# No test starts these.
_OF_BENCHMARKS = ("chain", "shards")


class MissingProgramError(RuntimeError):
    """A program has not been built."""


def built(name: str) -> str:
    """Return the path of a program of this workspace, from UNDERPASS_BIN or target/release."""
    path = Path(os.environ.get("UNDERPASS_BIN") or _ROOT / "target" / "release") / name
    if not path.exists():
        made = "`make bench`" if name in _OF_BENCHMARKS else "`make build`"
        raise MissingProgramError(f"{path} is not there: run {made}, or set UNDERPASS_BIN")
    return str(path)


def missing(*names: str) -> str | None:
    """Say which of the workspace's programs are not built, None if all are."""
    for name in names:
        try:
            built(name)
        except MissingProgramError as error:
            return str(error)
    return None


def installed(name: str) -> Path | None:
    """Return the path of a foreign program in .tools, if `.ci/setup` has installed it."""
    path = _ROOT / ".tools" / "bin" / name
    return path if path.exists() else None


def example_output(package: str, name: str) -> dict[str, Any]:
    """Run an example of a package of this workspace, built for release; return its JSON output."""
    command = ("cargo", "run", "--quiet", "--locked", "--release", "-p", package, "--example", name)
    told: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=_ROOT, text=True))
    return told


def origin_argv() -> list[str]:
    """Return the command line of the origin servers."""
    return [sys.executable, "-m", "tests.testbed.origin"]
