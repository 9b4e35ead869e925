"""Valhalla's map matcher Meili on the same drives, asked over HTTP.

`.ci/setup --bench` unpacks the wheel of `pyvalhalla`: its programs need no Python, where its
module needs a newer one than Debian 12 has.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import osmium

from tests.drives.extract import Extract
from tests.drives.kinds import KnownDrive
from tests.drives.matching import Match
from tests.free_port import free_port
from tests.testbed.process import processor_s

_PACKAGE = Path(__file__).parents[2] / ".tools" / "valhalla" / "valhalla"
_ATTRIBUTES = [
    "shape",
    "edge.way_id",
    "edge.begin_heading",
    "edge.begin_shape_index",
    "edge.end_shape_index",
    "matched.type",
    "matched.edge_index",
    "matched.point",
]
# How far back Meili looks when fixes come one by one, s.
_LAST_S = 60.0
_START_S = 30.0
# A polyline's unit, in degrees.
_PRECISION = 1e-6
# Valhalla's status when no road fits.
_NO_ROAD = http.client.BAD_REQUEST


class Found(NamedTuple):
    """Meili's matches of a drive's fixes, and the processor time for all of them, s.

    `whole` uses the whole drive, `online` only the last minute before each fix.
    """

    whole: list[Match | None]
    online: list[Match | None]
    whole_s: float
    online_s: float


def missing() -> str | None:
    """Return why Meili cannot be run."""
    if (_PACKAGE / "bin" / "valhalla_service").is_file():
        return None
    return "Valhalla is not installed: .ci/setup --bench does it"


def version() -> str:
    """Return the version of `pyvalhalla` that is unpacked, "" if none is."""
    found = sorted(_PACKAGE.parent.glob("pyvalhalla-*.dist-info"))
    return found[-1].name.removeprefix("pyvalhalla-").removesuffix(".dist-info") if found else ""


def match(extract: Extract, file: Path, drives: Iterable[KnownDrive]) -> Iterator[Found]:
    """Match drives over an extract's roads, on tiles built from its file."""
    with (
        tempfile.TemporaryDirectory(prefix="meili-") as folder,
        _service(extract, file, Path(folder)) as service,
    ):
        for made in drives:
            fixes = [(fix.lat, fix.lon, fix.time_ms / 1000.0) for fix in made.drive.fixes]
            began_s = service.processor_s()
            whole = service.matched(fixes)
            between_s = service.processor_s()
            online, first = [], 0
            for number, (_, _, now_s) in enumerate(fixes):
                while now_s - fixes[first][2] > _LAST_S:
                    first += 1
                online.append(service.matched(fixes[first : number + 1])[-1])
            ended_s = service.processor_s()
            yield Found(whole, online, between_s - began_s, ended_s - between_s)


@dataclass(frozen=True)
class _Service:
    process: subprocess.Popen[bytes]
    port: int

    def processor_s(self) -> float:
        """Return the processor time that the service has used, s."""
        return processor_s(self.process.pid)

    def matched(self, fixes: Sequence[tuple[float, float, float]]) -> list[Match | None]:
        """Return the way and its heading for each fix, None for a fix on no road."""
        if len(fixes) < 2:
            return [None] * len(fixes)
        request = {
            "shape": [{"lat": lat, "lon": lon, "time": time_s} for lat, lon, time_s in fixes],
            "costing": "auto",
            "shape_match": "map_snap",
            "filters": {"attributes": _ATTRIBUTES, "action": "include"},
        }
        status, answer = self.ask("POST", "/trace_attributes", json.dumps(request))
        if status == _NO_ROAD:
            return [None] * len(fixes)
        if status != http.client.OK:
            raise RuntimeError(f"Meili answers {status}: {answer}")
        edges, line = answer["edges"], _decoded(answer["shape"])
        return [_match_of(point, edges, line) for point in answer["matched_points"]]

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """Return the status and document of the service's answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())


@contextlib.contextmanager
def _service(extract: Extract, file: Path, folder: Path) -> Iterator[_Service]:
    """Build tiles of the extract, and run the service on them."""
    roads, tiles, config = folder / "roads.osm.pbf", folder / "tiles", folder / "valhalla.json"
    _write(extract, file, roads)
    tiles.mkdir()
    settings = json.loads(_output([sys.executable, _PACKAGE / "valhalla_build_config.py"]))
    settings["mjolnir"] |= {"tile_dir": str(tiles), "tile_extract": "", "logging": {"type": ""}}
    port = free_port()
    for name, part in settings.items():
        if isinstance(part, dict) and "service" in part:
            part["service"] |= {
                key: f"ipc://{folder / f'{name}-{key}'}"
                for key, value in part["service"].items()
                if str(value).startswith("ipc:")
            }
    settings["httpd"]["service"]["listen"] = f"tcp://127.0.0.1:{port}"
    config.write_text(json.dumps(settings))
    _output([_PACKAGE / "bin" / "valhalla_build_tiles", "-c", config, roads])
    # Discard the output: the service writes a line for each trace.
    process = subprocess.Popen(
        [_PACKAGE / "bin" / "valhalla_service", config, "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        service = _Service(process, port)
        _until_ready(service)
        yield service
    finally:
        process.terminate()
        process.wait(timeout=_START_S)


def _until_ready(service: _Service) -> None:
    end = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if service.ask("GET", "/status")[0] == http.client.OK:
                return
        if service.process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"Valhalla's service does not come up: {service.process.returncode}")
        time.sleep(0.1)


def _output(command: Sequence[str | Path]) -> str:
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{command[0]}: {made.stderr[-1000:] or made.returncode}")
    return made.stdout


def _match_of(
    point: dict[str, Any], edges: Sequence[dict[str, Any]], line: Sequence[tuple[float, float]]
) -> Match | None:
    number = point.get("edge_index")
    if point["type"] == "unmatched" or number is None or number >= len(edges):
        return None
    edge = edges[number]
    part = line[edge["begin_shape_index"] : edge["end_shape_index"] + 1]
    heading = _heading(part, point["lon"], point["lat"])
    return Match(edge["way_id"], edge["begin_heading"] if heading is None else heading)


def _decoded(line: str) -> list[tuple[float, float]]:
    """Return the longitude and latitude of an encoded polyline's points."""
    numbers: list[int] = []
    value = shift = 0
    for character in line:
        part = ord(character) - 63
        value |= (part & 0x1F) << shift
        shift += 5
        if part < 0x20:
            numbers.append(~(value >> 1) if value & 1 else value >> 1)
            value = shift = 0
    points, lat, lon = [], 0, 0
    for north, east in zip(numbers[::2], numbers[1::2], strict=True):
        lat, lon = lat + north, lon + east
        points.append((lon * _PRECISION, lat * _PRECISION))
    return points


def _heading(line: Sequence[tuple[float, float]], lon: float, lat: float) -> float | None:
    """Return a line's direction where it is nearest to a place; None if it has no length.

    Valhalla gives an edge's headings only at its ends, which may be kilometres and many bends away.
    """
    wide = math.cos(math.radians(lat))
    nearest, heading = math.inf, None
    for (from_lon, from_lat), (to_lon, to_lat) in pairwise(line):
        x, y = (to_lon - from_lon) * wide, to_lat - from_lat
        away_x, away_y = (lon - from_lon) * wide, lat - from_lat
        square = x * x + y * y
        if square == 0.0:
            continue
        along = min(max((away_x * x + away_y * y) / square, 0.0), 1.0)
        distance = math.hypot(away_x - along * x, away_y - along * y)
        if distance < nearest:
            nearest, heading = distance, math.degrees(math.atan2(x, y)) % 360.0
    return heading


def _write(extract: Extract, file: Path, roads: Path) -> None:
    """Write an extract with its road tunnels as drives pass them, in the order that tiles need."""
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
