"""Valhalla's map matcher Meili on the same drives: a process of its own Python environment.

`.ci/setup --bench` makes that environment, since the wheels of `pyvalhalla` that can build tiles
need a newer Python than Debian 12 has.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import osmium

from tests.drives.extract import Extract
from tests.drives.kinds import KnownDrive
from tests.drives.matching import Match

_ROOT = Path(__file__).parents[3]
_PYTHON = _ROOT / ".tools" / "valhalla" / "bin" / "python"
_WORKER = Path(__file__).with_name("worker.py")


class Found(NamedTuple):
    """What Meili matches of a drive's fixes, and the processor's seconds for all of them.

    `whole` is with the whole drive known, `online` with the last minute before each fix.
    """

    whole: list[Match | None]
    online: list[Match | None]
    whole_s: float
    online_s: float


def missing() -> str | None:
    """Return why Meili cannot be run."""
    if _PYTHON.is_file():
        return None
    return "Valhalla is not installed: .ci/setup --bench does it where there is Python 3.12"


def match(extract: Extract, file: Path, drives: Iterable[KnownDrive]) -> Iterator[Found]:
    """Match drives over an extract's roads, on tiles that are built of its file."""
    with tempfile.TemporaryDirectory(prefix="meili-") as folder:
        roads = Path(folder) / "roads.osm.pbf"
        _write(extract, file, roads)
        command = [
            str(_PYTHON),
            "-W",
            "ignore::DeprecationWarning",
            str(_WORKER),
            str(roads),
            folder,
        ]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdin and worker.stdout
            for made in drives:
                fixes = [(fix.lat, fix.lon, fix.time_ms / 1000.0) for fix in made.drive.fixes]
                print(json.dumps(fixes), file=worker.stdin, flush=True)
                answer = worker.stdout.readline()
                if not answer:
                    raise RuntimeError(f"Meili has ended with {worker.wait()}")
                told = json.loads(answer)
                yield Found(
                    _matches(told["whole"]),
                    _matches(told["online"]),
                    told["whole_s"],
                    told["online_s"],
                )
            worker.stdin.close()


def _matches(told: Iterable[tuple[int, float] | None]) -> list[Match | None]:
    return [None if one is None else Match(*one) for one in told]


def _write(extract: Extract, file: Path, roads: Path) -> None:
    """Write an extract with its tunnels as they are driven through, in the order tiles need."""
    dug = {e.way.id: e.way.tags for e in extract.network.edges.values() if extract.cover(e)}

    with osmium.SimpleWriter(str(roads)) as writer:

        class Digger(osmium.SimpleHandler):
            def node(self, node: osmium.osm.Node) -> None:
                writer.add_node(node)

            def way(self, way: osmium.osm.Way) -> None:
                tags = dug.get(way.id)
                writer.add_way(way if tags is None else way.replace(tags=dict(tags)))

            def relation(self, relation: osmium.osm.Relation) -> None:
                writer.add_relation(relation)

        reader = osmium.MergeInputReader()
        reader.add_file(str(file))
        reader.apply(Digger())
