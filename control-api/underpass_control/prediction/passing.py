"""Finds a vehicle's passages of the map's obstructions in the roads that it has driven."""

from __future__ import annotations

from typing import NamedTuple

from dama.prediction import ObstructionMap, Track
from dama.prediction.places import Position

# A road before or after a passage has at least this probability: beside a shadow there may be
# another road.
_CERTAINLY = 0.9


class MapPassage(NamedTuple):
    """A passage of an obstruction of the map, all the way through.

    `begin_ms` is when the vehicle was last surely on the road before it, `end_ms` when it was first
    surely on the one after it. `inside_m` is the length of the covered roads in metres, `place`
    where the first of them begins.
    """

    obstruction_id: str
    begin_ms: int
    end_ms: int
    inside_m: float
    place: Position


class Passing:
    """Follows the roads that a vehicle has surely driven, from fix to fix.

    A road may become sure some time after it was driven, so a passage may seem longer than it was,
    and is hardly shorter. It counts once the roads before and after it are certain.
    """

    def __init__(self) -> None:
        self._driven: tuple[str, ...] = ()
        self._sure_ms: int | None = None
        # Whether the last of the roads is certain.
        self._is_certain = False
        # The passage that is under way, and those that are over while the road after is uncertain.
        self._now: MapPassage | None = None
        self._over: list[MapPassage] = []

    def look(self, track: Track, on: ObstructionMap) -> list[MapPassage]:
        """Return the passages that are over since the last look."""
        if track.sure is None or track.sure.time_ms == self._sure_ms:
            # Nothing has been sure since; the drive may have ended.
            return []
        if track.driven != self._driven:
            self._follow(track.driven, on, track.sure.time_ms)
        self._sure_ms = track.sure.time_ms
        here = track.hypotheses[0] if track.hypotheses else None
        if here and here.weight >= _CERTAINLY and track.driven[-1:] == (here.road_id,):
            self._is_certain = True
        if not self._is_certain:
            return []
        over, self._over = self._over, []
        return over

    def _follow(self, driven: tuple[str, ...], on: ObstructionMap, sure_ms: int) -> None:
        before, self._driven = self._driven, driven
        was_certain, self._is_certain = self._is_certain, False
        if not before or driven[: len(before)] != before or self._sure_ms is None:
            # The drive has begun, or its last roads were a mistake.
            self._now, self._over = None, []
            return
        covered = _cover(on, before[-1])
        for road_id in driven[len(before) :]:
            cover = _cover(on, road_id)
            if cover != covered:
                if self._now is not None:
                    self._over.append(self._now._replace(end_ms=sure_ms))
                self._now = None
                if cover is not None and was_certain:
                    place = on.course(road_id).line[0]
                    self._now = MapPassage(cover, self._sure_ms, sure_ms, 0.0, place)
            if self._now is not None:
                inside_m = self._now.inside_m + on.course(road_id).length_m
                self._now = self._now._replace(inside_m=inside_m)
            covered = cover


def _cover(on: ObstructionMap, road_id: str) -> str | None:
    """Return what covers a road; None also for a road of an earlier map."""
    return on.cover(road_id) if road_id in on else None
