"""Where the programs of the test bed are."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]


class MissingProgramError(RuntimeError):
    """A program has not been built."""


def built(name: str) -> str:
    """Return the path of a program of this workspace, from UNDERPASS_BIN or target/release."""
    path = Path(os.environ.get("UNDERPASS_BIN") or _ROOT / "target" / "release") / name
    if not path.exists():
        raise MissingProgramError(f"{path} is not there: run `make build`, or set UNDERPASS_BIN")
    return str(path)


def missing(*names: str) -> str | None:
    """Say which of the workspace's programs are not built, None when all are."""
    for name in names:
        try:
            built(name)
        except MissingProgramError as error:
            return str(error)
    return None


@functools.cache
def measures_rates() -> bool:
    """Tell whether the built `underpass` finds a hop's rate by itself: it takes hints of it."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write('[[path]]\nname = "p"\nneighbour = 1\nremote = "192.0.2.1:4556"\n')
        config.write("rate_hint_bps = 1000000\n")
        config.flush()
        argv = [built("underpass"), "check-config", "--config", config.name]
        checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "rate_hint_bps" not in checked.stdout + checked.stderr


def installed(name: str) -> Path | None:
    """Return the path of a foreign program that `.ci/setup` has put into .tools, if it has."""
    path = _ROOT / ".tools" / "bin" / name
    return path if path.exists() else None


def origin_argv() -> list[str]:
    """Return the command line of the origin servers."""
    return [sys.executable, "-m", "tests.testbed.origin"]
