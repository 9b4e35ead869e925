"""Prints the part of requirements.lock that the control service needs at run time.

The lock has what develops and tests it, too. What needs what is asked of the packages themselves,
so this runs in the project's environment.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def needed(names: list[str]) -> set[str]:
    """Return the packages that these requirements lead to."""
    found: set[str] = set()
    left = [Requirement(name) for name in names]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        asked = [Requirement(one) for one in requires(name) or ()]
        extras = wanted.extras or {""}
        new = {name, *(f"{name}[{extra}]" for extra in extras if extra)} - found
        if new:
            found |= new
            left += [
                one
                for one in asked
                if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)
            ]
    return {name for name in found if "[" not in name}


def main() -> None:
    """Print it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = needed(project["dependencies"])
    lock = (ROOT / "requirements.lock").read_text()
    entries = {
        canonicalize_name(entry[1]): entry[0]
        for entry in re.finditer(r"^([A-Za-z0-9._-]+)==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    }
    missing = wanted - entries.keys()
    if missing:
        sys.exit(f"not in requirements.lock: {', '.join(sorted(missing))}")
    sys.stdout.writelines(entries[name] for name in sorted(wanted))


main()
