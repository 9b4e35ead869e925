"""Writes what a package is made of: a CycloneDX list, and the texts of the licences.

Names, versions and hashes are those of Cargo.lock, requirements.lock and the console's
package-lock.json; licences are those that the packages themselves declare and bring. Nothing is
asked of the network.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = ROOT / "console"
# The packages are for this one: crates for other systems are not in them.
PLATFORM = "x86_64-unknown-linux-gnu"
_LICENCE_FILES = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


@dataclass(frozen=True)
class Component:
    """A package of others that is inside ours."""

    name: str
    version: str
    # Package URL: https://github.com/package-url/purl-spec
    purl: str
    # SPDX expression, or what the package says instead.
    licence: str
    # SHA-256, or of npm's packages SHA-512, hexadecimal, of the archives that the lock allows.
    hashes: tuple[str, ...]
    needs: tuple[str, ...]
    texts: tuple[Path, ...]


def crates() -> list[Component]:
    """Return the crates that are linked into `underpass`, or run to build it."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    command += ["--filter-platform", PLATFORM]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in found["packages"]}
    edges = {
        node["id"]: [
            dep["pkg"]
            for dep in node["deps"]
            if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])
        ]
        for node in found["resolve"]["nodes"]
    }
    start = next(key for key, package in packages.items() if package["name"] == "underpass")
    reached = {start}
    left = [start]
    while left:
        new = set(edges[left.pop()]) - reached
        reached |= new
        left += new
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in lock}

    def purl(key: str) -> str:
        return f"pkg:cargo/{packages[key]['name']}@{packages[key]['version']}"

    def component(key: str) -> Component:
        package = packages[key]
        return Component(
            package["name"],
            package["version"],
            purl(key),
            (package["license"] or "see its texts").replace("/", " OR "),
            (sums[package["name"], package["version"]],),
            tuple(sorted(purl(one) for one in edges[key])),
            _texts(Path(package["manifest_path"]).parent),
        )

    # Our own crates have no checksum: they are the package itself.
    foreign = (key for key in reached if packages[key]["source"] is not None)
    return sorted(map(component, foreign), key=lambda one: one.purl)


def distributions(site: Path) -> list[Component]:
    """Return the Python packages that are installed in a folder."""
    lock = (ROOT / "requirements.lock").read_text()
    found = []
    for folder in sorted(site.glob("*.dist-info")):
        told = PathDistribution(folder).metadata
        name = re.sub(r"[-_.]+", "-", told["Name"]).lower()
        entry = re.search(rf"^{re.escape(name)}==(\S+)((?:.*\\\n)*.*\n)", lock, re.MULTILINE)
        if entry is None or entry[1] != told["Version"]:
            sys.exit(f"{name} {told['Version']} is not what requirements.lock has")
        classified = [one for one in told.get_all("Classifier") or () if one.startswith("License")]
        licence = told["License-Expression"] or told["License"] or "; ".join(classified)
        found.append(
            Component(
                name,
                entry[1],
                f"pkg:pypi/{name}@{entry[1]}",
                (licence or "see its texts").strip().splitlines()[0],
                tuple(re.findall(r"--hash=sha256:(\w+)", entry[2])),
                (),
                _texts(folder),
            )
        )
    return found


def modules() -> list[Component]:
    """Return the npm packages that are bundled into the console, without those that build it."""
    lock = json.loads((CONSOLE / "package-lock.json").read_text())
    places: dict[str, dict[str, Any]] = lock["packages"]

    def purl(place: str) -> str:
        name = place.rpartition("node_modules/")[2].replace("@", "%40")
        return f"pkg:npm/{name}@{places[place]['version']}"

    def needed(place: str, name: str) -> str | None:
        """Return where Node.js finds a package that another one needs: the nearest one."""
        while True:
            found = f"{place}/node_modules/{name}".lstrip("/")
            if found in places:
                return found
            if not place:
                return None
            place = place.rpartition("node_modules/")[0].rstrip("/")

    found = []
    for place, told in places.items():
        # The empty place is the console itself.
        if not place or told.get("dev"):
            continue
        folder = CONSOLE / place
        if not folder.is_dir():
            sys.exit(f"{folder} is not there, which has its licence: run `console/npm ci` first")
        algorithm, _, digest = told["integrity"].partition("-")
        if algorithm != "sha512":
            sys.exit(f"package-lock.json has {algorithm} of {place}, not sha512")
        needs = (needed(place, name) for name in told.get("dependencies", ()))
        found.append(
            Component(
                place.rpartition("node_modules/")[2],
                told["version"],
                purl(place),
                told.get("license") or "see its texts",
                (base64.b64decode(digest).hex(),),
                tuple(sorted(purl(one) for one in needs if one is not None)),
                _texts(folder),
            )
        )
    return sorted(found, key=lambda one: one.purl)


def bill(name: str, version: str, components: list[Component]) -> dict[str, Any]:
    """Return the list in the form of CycloneDX 1.5."""
    moment = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    inside = [
        {
            "type": "library",
            "bom-ref": one.purl,
            "name": one.name,
            "version": one.version,
            "purl": one.purl,
            "licenses": [_licence(one.licence)],
            **_hashes(one.hashes),
        }
        for one in components
    ]
    known = {one.purl for one in components}
    needs = [
        {"ref": one.purl, "dependsOn": [need for need in one.needs if need in known]}
        for one in components
        if one.needs
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, version, inside])).urn,
        "version": 1,
        "metadata": {
            "timestamp": moment.isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "name": name,
                "version": version,
                "licenses": [{"expression": "Apache-2.0 OR MIT"}],
            },
        },
        "components": inside,
        "dependencies": needs,
    }


def texts(components: Iterable[Component]) -> Iterator[str]:
    """Yield the licences, each text once, with the packages that bring it."""
    owners: dict[str, list[str]] = {}
    for one in components:
        yield f"{one.name} {one.version}: {one.licence}\n"
        for path in one.texts:
            text = path.read_text(errors="replace").strip()
            owners.setdefault(text, []).append(f"{one.name} {one.version}")
    for text, names in owners.items():
        yield f"\n{'-' * 78}\n{', '.join(dict.fromkeys(names))}\n\n{text}\n"


def _hashes(sums: tuple[str, ...]) -> dict[str, Any]:
    """Return the archive's hash, or those of all archives of which the lock allows any."""
    if len(sums) == 1:
        algorithm = f"SHA-{4 * len(sums[0])}"
        return {"hashes": [{"alg": algorithm, "content": sums[0]}]}
    return {"properties": [{"name": "underpass:archive:sha256", "value": one} for one in sums]}


def _licence(told: str) -> dict[str, Any]:
    # An SPDX expression has no other signs, and a name has words that are none.
    spdx = re.fullmatch(r"\(?[A-Za-z0-9.+-]+\)?(?: (?:AND|OR|WITH) \(?[A-Za-z0-9.+-]+\)?)*", told)
    if spdx and told.count("(") == told.count(")"):
        return {"expression": told}
    return {"license": {"name": told}}


def _texts(folder: Path) -> tuple[Path, ...]:
    places = [folder, folder / "licenses"]
    found = [path for place in places if place.is_dir() for path in place.iterdir()]
    return tuple(sorted(p for p in found if p.is_file() and _LICENCE_FILES.match(p.name)))


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["rust", "python"])
    parser.add_argument("--site", type=Path, help="the folder of installed packages (python)")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=Path, required=True, help="the files' path, without ending")
    asked = parser.parse_args()
    components = crates() if asked.kind == "rust" else [*distributions(asked.site), *modules()]
    made = bill(asked.out.name, asked.version, components)
    Path(f"{asked.out}.cdx.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    Path(f"{asked.out}.licences.txt").write_text("".join(texts(components)))


if __name__ == "__main__":
    main()
