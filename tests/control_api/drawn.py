"""Maps drawn in metres, as OpenStreetMap files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from dama.prediction.places import Plane

Drawn = tuple[str, dict[str, str]]
# A turn restriction: its tags, its `from` ways, the place of its `via` node or its `via` ways, and
# its `to` ways.
Restricted = tuple[dict[str, str], tuple[int, ...], str | tuple[int, ...], tuple[int, ...]]


def draw(
    path: Path,
    plane: Plane,
    *ways: Drawn,
    turns: Iterable[Restricted] = (),
    lights: Collection[str] = (),
) -> Path:
    """Write ways drawn as `x,y x,y …` in metres, nodes joined where they are at one place.

    Ways are numbered from 1; traffic lights stand at places `x,y`.
    """
    nodes: dict[str, int] = {}
    lines = []
    for number, (points, tags) in enumerate(ways, 1):
        refs = "".join(
            f'<nd ref="{nodes.setdefault(point, len(nodes) + 1)}"/>' for point in points.split()
        )
        text = "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
        lines.append(f'<way id="{number}" version="1">{refs}{text}</way>')
    for number, (tags, came, via, goes) in enumerate(turns, 1):
        members = [("way", way, "from") for way in came]
        if isinstance(via, str):
            members.append(("node", nodes[via], "via"))
        else:
            members += [("way", way, "via") for way in via]
        members += [("way", way, "to") for way in goes]
        inner = "".join(f'<member type="{t}" ref="{n}" role="{role}"/>' for t, n, role in members)
        inner += "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
        lines.append(f'<relation id="{number}" version="1">{inner}</relation>')
    placed = []
    for point, number in nodes.items():
        lon, lat = plane.position(*map(float, point.split(",")))
        light = '<tag k="highway" v="traffic_signals"/>' if point in lights else ""
        placed.append(
            f'<node id="{number}" version="1" lon="{lon:.7f}" lat="{lat:.7f}">{light}</node>'
        )
    path.write_text('<osm version="0.6">' + "".join([*placed, *lines]) + "</osm>")
    return path
