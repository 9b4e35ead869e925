"""The recorded drive, where the field data lie beside the project.

Its obstruction lines are drawn from the drive itself: the axis from the last fix before each loss
to the first one after, the approach along the fixes before. So it checks the timing of entries,
with real speeds and a real receiver; that roads are told apart it cannot check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from underpass_control.tracks.nmea import read_nmea

from dama.prediction import Fix, Obstruction, road_tunnel
from dama.prediction.places import Position, distance_m
from tests.drives.evaluation import Entry

FIELD = Path(
    os.environ.get("UNDERPASS_FIELD", Path(__file__).parents[3] / "shared" / "field")
).absolute()
_DRIVE = "switzerland-2010-04-03.nmea"
ANDORRA = "andorra.osm.pbf"
EXTRACTS = {"andorra": ANDORRA, "krems": "krems.osm.gz", "moscow": "moscow.osm.gz"}
_ROW = re.compile(r"\| (\d+\.\d+), (\d+\.\d+) \| ")
_STOP = re.compile(r"(\d+\.\d+), (\d+\.\d+) \((\d+\.\d) s\)")
# The last sentence of each second, with its time of day.
_CLOCK = re.compile(r"\s*\$GPRMC,(\d{6})")
_APPROACH_M = 2_500.0


def missing(*names: str) -> str | None:
    """Return why tests that read the field data cannot run."""
    absent = [name for name in names if not (FIELD / name).is_file()]
    return f"no field data at {FIELD}: {', '.join(absent)}" if absent else None


def missing_drive() -> str | None:
    """Return why the recorded drive cannot be read."""
    return missing(_DRIVE, "README.md")


@dataclass(frozen=True)
class Recorded:
    """The drive, its tunnels, when they were entered, and its stops without fix."""

    fixes: tuple[Fix, ...]
    obstructions: tuple[Obstruction, ...]
    entries: tuple[Entry, ...]
    stops: tuple[tuple[Fix, Fix], ...]


def recorded() -> Recorded:
    """Read the drive."""
    with (FIELD / _DRIVE).open(encoding="latin-1") as log:
        fixes = tuple(read_nmea(log))
    text = (FIELD / "README.md").read_text()
    tunnels = list(_gaps(fixes, [(float(lon), float(lat)) for lat, lon in _ROW.findall(text)]))
    stops = [(float(lon), float(lat)) for lat, lon, _ in _STOP.findall(text)]
    obstructions = tuple(_tunnel(fixes, n, last) for n, last in enumerate(tunnels, 1))
    return Recorded(
        fixes,
        obstructions,
        tuple(
            Entry(obstruction.id, fixes[last].time_ms)
            for obstruction, last in zip(obstructions, tunnels, strict=True)
        ),
        tuple((fixes[last], fixes[last + 1]) for last in _gaps(fixes, stops)),
    )


def log_between(from_ms: int, to_ms: int) -> str:
    """Return the receiver's log from one time of the drive to another, in whole seconds."""
    first, last = (f"{datetime.fromtimestamp(at / 1000, UTC):%H%M%S}" for at in (from_ms, to_ms))
    kept: list[str] = []
    with (FIELD / _DRIVE).open(encoding="latin-1") as log:
        for line in log:
            clock = _CLOCK.match(line)
            if kept or (clock and clock[1] >= first):
                kept.append(line)
            if clock and clock[1] >= last:
                break
    return "".join(kept)


def _gaps(fixes: Sequence[Fix], places: Sequence[Position]) -> Iterator[int]:
    """Yield the fix before each of the losses at these places, as the README gives them."""
    gaps = [n for n in range(len(fixes) - 1) if fixes[n + 1].time_ms - fixes[n].time_ms > 3_000]
    for place in places:
        yield min(gaps, key=lambda n: distance_m(fixes[n].place, place))


def _tunnel(fixes: Sequence[Fix], number: int, last: int) -> Obstruction:
    entry, leave = fixes[last].place, fixes[last + 1].place
    before = [entry]
    for fix in reversed(fixes[:last]):
        if distance_m(fix.place, entry) > _APPROACH_M:
            break
        if distance_m(fix.place, before[-1]) >= 20.0:
            before.append(fix.place)
    return road_tunnel(
        f"field:{number}", (entry, leave), into_start=[tuple(before[::-1])], oneway=True
    )
