"""The process that runs Meili: a JSON list of fixes a line in, a JSON line of matches out.

It runs in an environment of its own and imports nothing of the project. Its arguments are a file
of OpenStreetMap data, sorted, and an empty folder for the tiles.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import valhalla
from valhalla.utils import decode_polyline

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
# How far back is looked where fixes come one by one.
_LAST_S = 60.0


def main() -> None:
    """Build tiles, then answer line by line."""
    roads, folder = sys.argv[1:]
    tiles = Path(folder) / "tiles"
    tiles.mkdir()
    settings = valhalla.get_config(tile_extract="", tile_dir=str(tiles))
    path = Path(folder) / "valhalla.json"
    path.write_text(json.dumps(settings))
    # The program lies inside the package; its wrapper looks for it on PATH.
    build = Path(valhalla.__file__).parent / "bin" / "valhalla_build_tiles"
    made = subprocess.run(
        [str(build), "-c", str(path), roads], capture_output=True, text=True, check=False
    )
    if made.returncode:
        sys.exit(f"no tiles: {made.stderr[-1000:] or made.returncode}")
    # The matcher writes a line for each trace to the standard output; answers have their own.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        actor = valhalla.Actor(settings)
        for line in sys.stdin:
            print(json.dumps(_answer(actor, json.loads(line))), file=answers, flush=True)


def _answer(actor: Any, fixes: list[list[float]]) -> dict[str, Any]:
    began = time.process_time()
    whole = _matched(actor, fixes)
    between = time.process_time()
    online = []
    first = 0
    for number, (_, _, now) in enumerate(fixes):
        while now - fixes[first][2] > _LAST_S:
            first += 1
        online.append(_matched(actor, fixes[first : number + 1])[-1])
    ended = time.process_time()
    return {
        "whole": whole,
        "online": online,
        "whole_s": between - began,
        "online_s": ended - between,
    }


def _matched(actor: Any, fixes: list[list[float]]) -> list[list[float] | None]:
    """Return the way's id and its heading for each fix, None where it is on none."""
    request = {
        "shape": [{"lat": lat, "lon": lon, "time": seconds} for lat, lon, seconds in fixes],
        "costing": "auto",
        "shape_match": "map_snap",
        "filters": {"attributes": _ATTRIBUTES, "action": "include"},
    }
    if len(fixes) < 2:
        return [None] * len(fixes)
    try:
        answer = actor.trace_attributes(request)
    except RuntimeError:
        # So it says that no road fits.
        return [None] * len(fixes)
    edges, line = answer["edges"], decode_polyline(answer["shape"])
    found: list[list[float] | None] = []
    for point in answer["matched_points"]:
        number = point.get("edge_index")
        if point["type"] == "unmatched" or number is None or number >= len(edges):
            found.append(None)
            continue
        edge = edges[number]
        part = line[edge["begin_shape_index"] : edge["end_shape_index"] + 1]
        heading = _heading(part, point["lon"], point["lat"])
        found.append([edge["way_id"], edge["begin_heading"] if heading is None else heading])
    return found


def _heading(line: list[tuple[float, float]], lon: float, lat: float) -> float | None:
    """Return the direction of a line where it is nearest to a place; None where it has no length.

    An edge's own headings are those of its ends, which may be kilometres and many bends away.
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


if __name__ == "__main__":
    main()
