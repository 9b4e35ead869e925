"""The packages, built as `make packages` builds them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.testbed import programs

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> Path:
    """Build all packages into a folder with the built program, and return the folder."""
    environment = {**os.environ, "UNDERPASS_BIN": str(Path(programs.built("underpass")).parent)}
    subprocess.run([ROOT / "packaging" / "build", folder], env=environment, check=True)
    return folder


def deb(folder: Path, name: str) -> Path:
    """Return the package of a name in the folder of the built ones."""
    (found,) = folder.glob(f"{name}_*.deb")
    return found
