"""The packages' scripts and contents."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "packaging" / "debian"
SCRIPTS = sorted(
    path for path in DEBIAN.glob("*/*") if path.name in {"postinst", "prerm", "postrm"}
)


def test_both_packages_have_all_their_scripts() -> None:
    found = {(path.parent.name, path.name) for path in SCRIPTS}
    packages = ("underpass", "underpass-control")
    assert found == {(p, s) for p in packages for s in ("postinst", "prerm", "postrm")}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_script_is_one_for_any_posix_shell_and_stops_at_a_failure(script: Path) -> None:
    assert script.read_text().startswith("#!/bin/sh\nset -e\n")
    checked = subprocess.run(["sh", "-n", script], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_gateway_is_stopped_by_its_removal_alone() -> None:
    """An upgrade of the package never ends a session: the new program takes the node over."""
    postinst = (DEBIAN / "underpass" / "postinst").read_text()
    assert "underpass upgrade" in postinst
    assert not re.search(r"\b(stop|restart|kill)\b", _commands(postinst))
    prerm = _commands((DEBIAN / "underpass" / "prerm").read_text())
    left_early = prerm.index('[ "$1" = remove ] || exit 0')
    assert left_early < prerm.index("deb-systemd-invoke stop")


def test_a_refused_upgrade_leaves_the_package_installed() -> None:
    """The script runs with programs that refuse: dpkg must not be left half configured."""
    postinst = (DEBIAN / "underpass" / "postinst").read_text()
    branch = re.search(r"if runuser.*?\n    fi\n", postinst, re.DOTALL)
    assert branch
    text = "set -e\nrunuser() { return 1; }\nunderpass() { return 1; }\n" + branch[0]
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "goes on with the program of before" in done.stderr
    assert "underpass upgrade" in done.stderr


def test_purging_takes_the_state_and_leaves_what_an_administrator_wrote() -> None:
    postrm = (DEBIAN / "underpass" / "postrm").read_text()
    assert "rm -rf /var/lib/underpass /run/underpass" in postrm
    assert "rm -rf /etc" not in postrm


def test_the_functions_agent_is_the_administrators_to_enable() -> None:
    """Without a site and Docker the agent has no work, and enabling it grants Docker's socket."""
    agent = "underpass-functions-agent.service"
    postinst = (DEBIAN / "underpass-control" / "postinst").read_text()
    was_enabled = postinst.index("was-enabled $agent")
    assert postinst.count("enable $agent") == 1 < was_enabled < postinst.index("enable $agent")
    # A running agent gets the new program; a stopped one stays stopped.
    assert "try-restart $agent" in postinst
    assert agent in postinst
    for script in ("prerm", "postrm"):
        assert agent in (DEBIAN / "underpass-control" / script).read_text()
    # Running slices still use these files.
    assert "slices" not in (DEBIAN / "underpass-control" / "postrm").read_text()


def test_each_unit_is_in_a_package() -> None:
    packed = re.findall(
        r"^ +unit [a-z-]+ ([a-z-]+)$", (ROOT / "packaging" / "build").read_text(), re.MULTILINE
    )
    units = (ROOT / "packaging" / "systemd").glob("*.service")
    assert sorted(packed) == sorted(unit.stem for unit in units)


def test_the_unit_of_the_package_is_the_documented_one_but_for_the_programs_place() -> None:
    build = (ROOT / "packaging" / "build").read_text()
    assert "s|/usr/local/bin/|/usr/bin/|" in build
    for unit in (ROOT / "packaging" / "systemd").glob("*.service"):
        started = re.findall(r"^Exec\w+=(\S+)", unit.read_text(), re.MULTILINE)
        assert started
        assert all(path.startswith("/usr/local/bin/underpass") for path in started)


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_the_bill_of_materials_has_every_linked_crate_with_its_locked_hash(tmp_path: Path) -> None:
    bill, licences = _materials(tmp_path, "rust")
    lock = (ROOT / "Cargo.lock").read_text()
    names = {one["name"] for one in bill["components"]}
    assert {"tokio", "rustls", "axum", "clap"} <= names
    # Only tests use it.
    assert "proptest" not in names
    for one in bill["components"]:
        entry = f'name = "{one["name"]}"\nversion = "{one["version"]}"\n'
        assert entry in lock
        assert one["hashes"][0]["content"] in lock
        assert one["licenses"]
        assert f"{one['name']} {one['version']}: " in licences
    known = {one["bom-ref"] for one in bill["components"]}
    for edge in bill["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= known


@pytest.mark.skipif(
    not (ROOT / "console" / "node_modules").is_dir(), reason="the console has not been built"
)
def test_the_bill_of_materials_has_what_is_bundled_into_the_console(tmp_path: Path) -> None:
    bill, licences = _materials(tmp_path, "python")
    lock = json.loads((ROOT / "console" / "package-lock.json").read_text())["packages"]
    found = {one["name"]: one for one in bill["components"]}
    bundled = {"maplibre-gl", "preact", "uplot", "@mapbox/point-geometry", "pbf"}
    assert bundled <= set(found)
    # They only build and test it.
    assert not {"vite", "vitest", "typescript", "axe-core"} & set(found)
    for name, one in found.items():
        known = lock[f"node_modules/{name}"]
        [told] = one["hashes"]
        integrity = base64.b64encode(bytes.fromhex(told["content"])).decode()
        assert (told["alg"], f"sha512-{integrity}") == ("SHA-512", known["integrity"])
        assert one["version"] == known["version"]
        assert f"{name} {one['version']}: {known['license']}" in licences
    assert found["@mapbox/point-geometry"]["purl"].startswith("pkg:npm/%40mapbox/point-geometry@")
    edges = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert found["pbf"]["purl"] in edges[found["maplibre-gl"]["purl"]]
    assert _not_permissive(bill) == []


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_every_linked_crate_may_be_given_on(tmp_path: Path) -> None:
    """Each crate declares a permissive licence, as the project's rules require."""
    bill, _ = _materials(tmp_path, "rust")
    assert _not_permissive(bill) == []


def _not_permissive(bill: dict[str, Any]) -> list[str]:
    """Return the components whose licence is none that the project's rules allow."""
    permissive = {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
        "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
    }  # fmt: skip
    refused = []
    for one in bill["components"]:
        expression = one["licenses"][0].get("expression", "")
        # One part of `A OR B` must be permissive, or each part of `A AND B`.
        choices = expression.replace("(", "").replace(")", "").split(" OR ")
        parts = [re.split(r" AND ", choice) for choice in choices]
        if not any(all(p.split(" WITH ")[0] in permissive for p in ps) for ps in parts):
            refused.append(f"{one['name']}: {expression}")
    return refused


def _materials(folder: Path, kind: str) -> tuple[dict[str, Any], str]:
    """Return the list and the licences; for Python without any Python package."""
    command: list[str | Path] = [sys.executable, ROOT / "packaging" / "materials.py", kind]
    command += ["--version", "1", "--out", folder / "underpass", "--site", folder / "site"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1"}
    subprocess.run(command, env=environment, check=True)
    bill = json.loads((folder / "underpass.cdx.json").read_text())
    return bill, (folder / "underpass.licences.txt").read_text()


def _commands(script: str) -> str:
    lines = (line for line in script.splitlines() if not line.strip().startswith(("#", "echo")))
    return "\n".join(lines)
