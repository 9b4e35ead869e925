"""The systemd unit leaves a node few rights and restarts it; image and documentation agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging" / "systemd" / "underpass.service"
UNITS = sorted(UNIT.parent.glob("*.service"))
MOST_EXPOSURE = 2.0

_ANALYZE = shutil.which("systemd-analyze")
_needs_analyze = pytest.mark.skipif(
    _ANALYZE is None, reason="systemd-analyze is not installed (Debian package systemd)"
)


def _analyze(*arguments: str) -> str:
    assert _ANALYZE is not None
    command = [_ANALYZE, "--no-pager", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _values(key: str) -> list[str]:
    """Return the words in all lines of a key of the unit."""
    lines = UNIT.read_text().splitlines()
    values = [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]
    return " ".join(values).split()


@_needs_analyze
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_exposes_little(unit: Path) -> None:
    """By systemd's own measure, of 0 (nothing) to 10 (everything)."""
    told = _analyze("security", "--offline=true", str(unit))
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert level, told
    assert float(level[1]) <= MOST_EXPOSURE, told


@_needs_analyze
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_knows_every_line_of_a_unit(unit: Path) -> None:
    """systemd only warns of a typing mistake in a unit, and the node keeps the right."""
    told = _analyze("verify", str(unit)).splitlines()
    # systemd also complains that the program is not installed here.
    assert [line for line in told if "is not executable" not in line] == []


def test_unit_documentation_and_image_name_the_same_capabilities() -> None:
    """The capabilities that a node may get, in the three places that operators read."""
    given = set(_values("AmbientCapabilities"))
    assert set(_values("CapabilityBoundingSet")) == given
    operation = (ROOT / "docs" / "operation.md").read_text()
    table = re.findall(r"^\| ((?:CAP_\w+(?:, )?)+)", operation, re.MULTILINE)
    documented = {name for row in table for name in row.split(", ")}
    # For ports below 1024; no default needs it.
    assert documented - {"CAP_NET_BIND_SERVICE"} == given
    image = (ROOT / "docker" / "README.md").read_text()
    added = re.search(r"cap_add: \[([^]]+)\]", image)
    assert added
    assert {f"CAP_{name.strip()}" for name in added[1].split(",")} == given


def test_the_image_gives_no_more_than_the_unit() -> None:
    """By default a container has less: an ordinary user, who may write only to its volume."""
    compose = (ROOT / "docker" / "compose.yaml").read_text()
    for line in ["cap_drop: [ALL]", '"no-new-privileges:true"', "read_only: true"]:
        assert line in compose, line
    assert "cap_add" not in compose
    assert "USER underpass" in (ROOT / "docker" / "gateway" / "Dockerfile").read_text()
    assert _values("NoNewPrivileges") == ["yes"]
    assert _values("ProtectSystem") == ["strict"]
    assert _values("User") == ["underpass"]


def test_a_node_that_ended_is_started_again_however_often() -> None:
    """Custody waits on the disk: a unit in its failed state would never forward it."""
    assert _values("Restart") == ["always"]
    assert _values("RestartSec") == ["1"]
    assert _values("StartLimitIntervalSec") == ["0"]
    compose = (ROOT / "docker" / "compose.yaml").read_text()
    assert "restart: unless-stopped" in compose
