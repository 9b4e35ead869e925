"""Learns obstructions that no map has, from a beam's terminals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dama.prediction import Blockage, ObstructionMap, Track
from dama.prediction.announcement import MAX_DURATION_MS
from dama.prediction.learning import KIND, Learned, Observation, learn, observe, passages, passed
from dama.prediction.places import Line, Position
from dama.prediction.same import matched
from dama.prediction.ways_ahead import MOST_PASSAGES
from underpass_control.prediction.beam_losses import BeamLosses
from underpass_control.prediction.observed import ObservedBlockage
from underpass_control.prediction.passing import MapPassage, Passing

# The most losses of a terminal that are remembered, judged or not.
_MOST_LOSSES = 8
# A passage is judged this long after its end, when reports of a loss on it have arrived. A loss is
# used earlier, while the track still reaches back to it, but after other terminals have had time to
# report losses at the same moment.
_JUDGED_AFTER_MS = 30_000
_LEARNED_AFTER_MS = 10_000
# A loss this near to a passage belongs to it.
_NEAR_MS = 10_000
# A node that holds back by plan, but hears its peer, sends again within this time.
_HEARD_WITHIN_MS = 3_000
# If no end is reported for this long of holding back by plan, or otherwise, it has been missed: the
# vehicle that drives there is in no blockage as long as the longest that may be announced.
_LONGEST_PLANNED_MS = MAX_DURATION_MS
_LONGEST_MS = 86_400_000
# A loss or holding back this near to a passage of the map is of it, and no other shadow's; a hold
# within `_NEAR_MS` may be either's.
_BESIDE_MS = 3_000
# A passage that lasts longer than at the present speed, by this factor and time, has an unknown
# part: a loss on it may be of another place.
_LONGER, _LONGER_MS = 2.0, 10_000
# On a passage of less time a loss may not be noticed. The speed is the usual one where it is not
# known, and not less than the least: a vehicle may stop after it.
_LEAST_INSIDE_S = 3.0
_USUAL_MPS, _LEAST_MPS = 15.0, 5.0
# The most passages of a terminal that are yet to be judged.
_MOST_PASSED = 64
# Lessons that wait while the database is away; further ones are not stored.
_MOST_UNSTORED = 1_000
# The most pairs of an obstruction and a terminal whose passages wait; those of others do not count.
_MOST_COUNTED = 5_000


@dataclass(frozen=True, slots=True)
class Lesson:
    """A loss of link at a place, or a passage of a known place.

    Attributes:
        id: of the place; for a loss at no known place, that of the new one.
        seen: the observation of the loss; None: a passage.
        satellite: of the terminal, where it is known.
        lost: whether the link was lost on the passage; otherwise it held.
    """

    id: str
    seen: Observation | None
    satellite: str | None = None
    lost: bool = False

    def applied(self, known: Iterable[Learned], mapped: ObstructionMap) -> tuple[Learned, ...]:
        """Return the known places after it."""
        if self.seen is None:
            return passed(known, self.id, lost=self.lost)
        return learn(known, self.seen, mapped, new_id=self.id, satellite=self.satellite)


@dataclass(slots=True)
class _Unjudged:
    """The observations of a terminal that may still teach something."""

    waiting: list[ObservedBlockage] = field(default_factory=list)
    # Past losses, for judging passages; and when a node held back, and whether by plan.
    losses: list[ObservedBlockage] = field(default_factory=list)
    held_back: list[tuple[ObservedBlockage, bool]] = field(default_factory=list)
    # By learned place, the passages expected of it, in order.
    expected: dict[str, list[Blockage]] = field(default_factory=dict)
    # By place, the end of the last judged passage.
    judged_ms: dict[str, int] = field(default_factory=dict)
    # The passages of the map's obstructions, and those of them that are not judged yet, each with
    # how long it takes at the speed of its end.
    passing: Passing = field(default_factory=Passing)
    passed: list[tuple[MapPassage, float]] = field(default_factory=list)

    def was_lost(self, begin_ms: int, end_ms: int, within_ms: int = _NEAR_MS) -> bool | None:
        """Tell whether the link was lost on a passage by plan; None: nothing follows.

        While a node holds back, it observes no loss. But if it does so by plan and goes on for
        longer than it takes to hear its peer, the peer was silent. That shows a loss only for a
        terminal whose losses are sensed at all. A loss that was sensed is a lesson of its own.
        Where the end was missed, as after a lost change, nothing follows for a limited time only.
        """
        near_ms = begin_ms - within_ms, end_ms + within_ms
        if any(loss.overlaps(*near_ms) for loss in self.losses):
            return None
        lost = False
        for held_back, by_plan in self.held_back:
            longest_ms = _LONGEST_PLANNED_MS if by_plan else _LONGEST_MS
            is_missed = held_back.exit_ms is None and near_ms[0] > held_back.entry_ms + longest_ms
            if is_missed or not held_back.overlaps(*near_ms):
                continue
            if not by_plan or held_back.exit_ms is None:
                return None
            if held_back.exit_ms - held_back.entry_ms > _HEARD_WITHIN_MS:
                if not self.losses:
                    return None
                lost = True
            elif end_ms - begin_ms < 2 * _HEARD_WITHIN_MS:
                # The plan may have been as brief.
                return None
        return lost


class Lessons:
    """Learns places from losses, and counts the passages with and without loss."""

    def __init__(self) -> None:
        self._map = ObstructionMap([])
        self._satellite: str | None = None
        self._known: dict[str, Learned] = {}
        self._of: dict[int, _Unjudged] = {}
        self._losses = BeamLosses()
        self._unstored: list[Lesson] = []
        # By obstruction of the map and terminal, how often the link was lost and held.
        self._counted: dict[tuple[str, int], tuple[int, int]] = {}

    def set_map(
        self,
        obstructions: ObstructionMap,
        learned: Mapping[str, Learned],
        satellite: str | None = None,
    ) -> None:
        """Take another map, all learned places, and the satellite that the terminals use.

        Their losses and passages count at places of no satellite, and of their own.
        """
        self._map = obstructions
        self._satellite = satellite
        self._known = {name: one for name, one in learned.items() if one.takes_from(satellite)}
        for lesson in self._unstored:
            self._apply(lesson)

    def forget(self, terminal: int) -> None:
        """Forget the observations of a terminal."""
        self._of.pop(terminal, None)

    def entered(self, terminal: int, entry_ms: int, place: Position | None) -> None:
        """Take in when and where a terminal's link was lost, as soon as that is reported."""
        self._losses.add(terminal, entry_ms, place)

    def lost(self, terminal: int, loss: ObservedBlockage) -> None:
        """Take in a loss of link that is over."""
        unjudged = self._of.setdefault(terminal, _Unjudged())
        unjudged.losses = [*unjudged.losses, loss][-_MOST_LOSSES:]
        unjudged.waiting = [*unjudged.waiting, loss][-_MOST_LOSSES:]

    def held_back(self, terminal: int, held_back: ObservedBlockage, *, by_plan: bool) -> None:
        """Take in when a node held back, at the beginning and again, with its exit, at the end."""
        unjudged = self._of.setdefault(terminal, _Unjudged())
        others = [one for one in unjudged.held_back if one[0].entry_ms != held_back.entry_ms]
        unjudged.held_back = [*others, (held_back, by_plan)][-_MOST_LOSSES:]

    def expect(self, terminal: int, blockages: Iterable[Blockage], now_ms: int) -> None:
        """Take in the blockages expected of a terminal, to see whether they come."""
        said: dict[str, list[Blockage]] = {}
        for blockage in blockages:
            if blockage.obstruction_id in self._known:
                said.setdefault(blockage.obstruction_id, []).append(blockage)
        for name, latest in said.items():
            unjudged = self._of.setdefault(terminal, _Unjudged())
            known = unjudged.expected.get(name, [])
            same = matched([one.span for one in known], [one.span for one in latest], now_ms)
            # Blockages that are no longer expected may have begun.
            begun = [one for place, one in enumerate(known) if place not in same.values()]
            unjudged.expected[name] = [*begun[-MOST_PASSAGES:], *latest]

    def look(self, terminal: int, track: Track, blocked_since_ms: int | None = None) -> None:
        """Learn from a terminal's losses and passages that its track has left behind.

        A loss teaches nothing if the beam's terminals share it. While the terminal's link is lost,
        since `blocked_since_ms`, passages of the map's obstructions say nothing; after a day, its
        end has been missed.
        """
        if track.last is None:
            return
        unjudged = self._of.get(terminal)
        if unjudged is None:
            unjudged = self._of[terminal] = _Unjudged()
        now_ms = track.last.time_ms
        is_blocked = blocked_since_ms is not None and now_ms - blocked_since_ms < _LONGEST_MS
        self._count_passages(terminal, unjudged, track, is_blocked=is_blocked)
        waiting, unjudged.waiting = unjudged.waiting, []
        for loss in waiting:
            if loss.exit_ms is None or now_ms < loss.exit_ms + _LEARNED_AFTER_MS:
                unjudged.waiting.append(loss)
                continue
            seen = observe(track, loss.entry_ms, loss.exit_ms)
            if seen is not None and not self._losses.are_shared(
                terminal, loss.entry_ms, seen.axis[0]
            ):
                self._teach(Lesson(new_id(seen.axis, self._satellite), seen, self._satellite))
        for name, blockages in list(unjudged.expected.items()):
            left = [one for one in blockages if now_ms < one.exit_ms + _JUDGED_AFTER_MS]
            if len(left) < len(blockages):
                late_ms = self._judge(name, unjudged, track)
                if late_ms is not None:
                    left.insert(0, replace(blockages[0], exit_ms=late_ms))
                unjudged.expected[name] = left
            if not left:
                del unjudged.expected[name]

    def counted(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return how often links were lost, and held, by obstruction of the map and terminal.

        Passages that are stored are left out.
        """
        return dict(self._counted)

    def counts_stored(self, counts: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Leave these passages out: they are stored."""
        for which, (lost, held) in counts.items():
            before = self._counted.pop(which)
            left = before[0] - lost, before[1] - held
            if any(left):
                self._counted[which] = left

    def unstored(self) -> list[Lesson]:
        """Return the lessons that are not stored, in order."""
        return list(self._unstored)

    def stored(self, count: int) -> None:
        """Forget the first of the lessons: they are stored."""
        del self._unstored[:count]

    def _count_passages(
        self, terminal: int, unjudged: _Unjudged, track: Track, *, is_blocked: bool
    ) -> None:
        """Count a terminal's passages of the map's obstructions, when losses have been reported."""
        assert track.last is not None
        now_ms = track.last.time_ms
        speed_mps = max(track.last.speed_mps or _USUAL_MPS, _LEAST_MPS)
        for passage in unjudged.passing.look(track, self._map):
            one = self._map.obstructions.get(passage.obstruction_id)
            # A shadow of a satellite counts only in a beam that is known to use it.
            if one and one.kind != KIND and one.satellite in (None, self._satellite):
                taking = passage, passage.inside_m / speed_mps
                unjudged.passed = [*unjudged.passed, taking][-_MOST_PASSED:]
        while unjudged.passed:
            passage, inside_s = unjudged.passed[0]
            if now_ms < passage.end_ms + _JUDGED_AFTER_MS:
                return
            del unjudged.passed[0]
            lost = None if is_blocked else self._was_lost(terminal, unjudged, passage, inside_s)
            which = passage.obstruction_id, terminal
            if lost is not None and (which in self._counted or len(self._counted) < _MOST_COUNTED):
                before = self._counted.get(which, (0, 0))
                self._counted[which] = before[0] + lost, before[1] + (not lost)

    def _was_lost(
        self, terminal: int, unjudged: _Unjudged, passage: MapPassage, inside_s: float
    ) -> bool | None:
        """Tell whether the link was lost on a passage of the map; None: nothing follows.

        That it held follows only for a terminal whose losses are sensed, and if there was none
        within `_NEAR_MS` of the passage.
        """
        begin_ms, end_ms = passage.begin_ms, passage.end_ms
        is_exact = end_ms - begin_ms <= 1_000.0 * _LONGER * inside_s + _LONGER_MS
        for loss in unjudged.losses:
            if loss.exit_ms is None or not loss.overlaps(
                begin_ms - _BESIDE_MS, end_ms + _BESIDE_MS
            ):
                continue
            lasted_ms = loss.exit_ms - loss.entry_ms
            is_of_it = is_exact and lasted_ms <= end_ms - begin_ms + 2 * _NEAR_MS
            shared = self._losses.are_shared(terminal, loss.entry_ms, passage.place)
            return True if is_of_it and not shared else None
        lost = unjudged.was_lost(begin_ms, end_ms)
        if lost:
            # It may have held back for another shadow beside this one.
            beside = unjudged.was_lost(begin_ms, end_ms, _BESIDE_MS)
            return True if is_exact and beside else None
        noticed_s = min(inside_s, (end_ms - begin_ms) / 1_000.0)
        is_sensed = bool(unjudged.losses) and noticed_s >= _LEAST_INSIDE_S
        near_ms = begin_ms - _NEAR_MS, end_ms + _NEAR_MS
        if lost is None or not is_sensed or self._losses.has_of(terminal, *near_ms):
            return None
        return False

    def _judge(self, name: str, unjudged: _Unjudged, track: Track) -> int | None:
        """Judge the passages of a place on the track that are not judged yet.

        Return the end of a passage that is too recent to be judged; None if there is none.
        """
        place, late_ms = self._known.get(name), None
        if place is None or track.last is None:
            return None
        judged_ms = unjudged.judged_ms.get(name, 0)
        for begin_ms, end_ms in passages(place, track):
            if track.last.time_ms < end_ms + _JUDGED_AFTER_MS:
                late_ms = end_ms
            elif end_ms > judged_ms:
                unjudged.judged_ms[name] = end_ms
                lost = unjudged.was_lost(begin_ms, end_ms)
                if lost is not None:
                    self._teach(Lesson(name, None, self._satellite, lost))
        # Passages before the beginning of the track are not judged again.
        begins_ms = track.trail[0].time_ms if track.trail else track.last.time_ms
        unjudged.judged_ms = {n: at for n, at in unjudged.judged_ms.items() if at >= begins_ms}
        return late_ms

    def _teach(self, lesson: Lesson) -> None:
        if self._apply(lesson) and len(self._unstored) < _MOST_UNSTORED:
            self._unstored.append(lesson)

    def _apply(self, lesson: Lesson) -> bool:
        """Apply a lesson; tell whether it changes anything."""
        if lesson.seen is None:
            return self._count_passage(lesson)
        before = self._known
        self._known = {place.id: place for place in lesson.applied(before.values(), self._map)}
        return self._known != before

    def _count_passage(self, lesson: Lesson) -> bool:
        """Apply a passage to its place only."""
        place = self._known.get(lesson.id)
        if place is None:
            return False
        left = lesson.applied((place,), self._map)
        if left:
            (self._known[place.id],) = left
        else:
            del self._known[place.id]
        return True


def new_id(axis: Line, satellite: str | None) -> str:
    """Return the id of a new place.

    All tenants see it, so it says nothing of whose link was lost there, or when.
    """
    text = json.dumps([satellite, axis])
    return f"learned:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
