"""An installed package works without the source tree that it was made from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from underpass_control.storage.schema import newest_revision

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with only the wheel's content."""
    made = tmp_path_factory.mktemp("installed")
    source, site = made / "source", made / "site"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("clients", "control-api", "dama", "docker/functions", "migrations"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(made), str(source)], made)
    (wheel,) = made.glob("underpass-*.whl")
    _run([*pip, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)], made)
    shutil.rmtree(source)
    return site


def _run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_migrates_its_database_by_itself(installed: Path, tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(installed)}
    where = "from underpass_control.storage import schema; print(schema.folder())"
    found = Path(_run([sys.executable, "-c", where], tmp_path, **path).strip())
    assert found.is_relative_to(installed)
    database = f"sqlite:///{tmp_path / 'control.db'}"
    command = [sys.executable, "-m", "underpass_control", "migrate", "--database", database]
    told = _run([*command, "--json"], tmp_path, **path)
    assert json.loads(told) == {"revision": newest_revision()}
    down = _run([*command, "--down-to", "base", "--json"], tmp_path, **path)
    assert json.loads(down) == {"revision": None}


def test_a_wheel_has_the_descriptors_of_functions(installed: Path, tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(installed)}
    where = "from underpass_control.functions import descriptors; print(*descriptors.installed())"
    told = _run([sys.executable, "-c", where], tmp_path, **path).split()
    assert set(told) == {one.stem for one in (ROOT / "docker" / "functions").glob("*.toml")}


def test_a_wheel_has_the_console_that_was_built(installed: Path) -> None:
    built = ROOT / "control-api" / "underpass_control" / "console"
    if not built.exists():
        pytest.skip("the console has not been built: make console")
    inside = installed / "underpass_control" / "console"
    names = {path.relative_to(built) for path in built.rglob("*") if path.is_file()}
    assert names == {path.relative_to(inside) for path in inside.rglob("*") if path.is_file()}
    assert (inside / "licenses.md").read_text().count("MapLibre") > 0
