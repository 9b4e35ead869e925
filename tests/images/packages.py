"""The packages, built as `make packages` builds them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.testbed import programs

ROOT = Path(__file__).parents[2]


def build(folder: Path, sources: Path = ROOT) -> Path:
    """Build all packages into a folder with the built program, and return the folder."""
    environment = {**os.environ, "UNDERPASS_BIN": str(Path(programs.built("underpass")).parent)}
    subprocess.run([sources / "packaging" / "build", folder], env=environment, check=True)
    return folder


def copy_sources(folder: Path) -> Path:
    """Copy the tree, which is then younger, with its built console; return the new folder."""
    results = ":!tests/benchmarks/results"
    listed = _run("git", "ls-files", "-z", "--", ".", results)
    packed = _run("tar", "--create", "--null", "--files-from=-", given=listed)
    folder.mkdir()
    _run("tar", "--extract", "--touch", "--directory", str(folder), given=packed)
    repository = _run("git", "rev-parse", "--absolute-git-dir").decode()
    (folder / ".git").write_text(f"gitdir: {repository}")
    console = Path("control-api/underpass_control/console")
    shutil.copytree(ROOT / console, folder / console)
    for installed in (".venv", "console/node_modules"):
        (folder / installed).symlink_to(ROOT / installed)
    return folder


def _run(*command: str, given: bytes = b"") -> bytes:
    return subprocess.run(command, cwd=ROOT, input=given, stdout=subprocess.PIPE, check=True).stdout


def deb(folder: Path, name: str) -> Path:
    """Return the package of a name in the folder of the built ones."""
    (found,) = folder.glob(f"{name}_*.deb")
    return found
