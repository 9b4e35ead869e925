"""The blockages ahead of a beam's terminals: predicted, announced and observed, reconciled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dama.prediction import (
    Announcement,
    Blockage,
    Fix,
    ObstructionMap,
    Predictor,
    Span,
    reconcile,
)
from dama.prediction.habits import MOST_DRIVES, MOST_ROADS, Habits
from dama.prediction.learning import Learned
from dama.prediction.places import Line
from dama.prediction.predictor import ENDED_SILENT_MS, leaps
from underpass_control.prediction.in_order import InOrder
from underpass_control.prediction.leaps import Leaps
from underpass_control.prediction.lessons import Lesson, Lessons
from underpass_control.prediction.observed import ObservedBlockage, as_observed, recognise
from underpass_control.prediction.withdrawn import Withdrawn

# Announcements of a terminal that are kept: the latest, while they are not over.
_MOST_ANNOUNCEMENTS = 32
# Without a new report, blockages are computed again after this time; less often for a vehicle that
# moved at its last fix, whose blockages stay the same.
_FRESH_MS = 500
_STEADY_MS = 5_000
# The roads remembered of all terminals together, in equal parts; a road takes some 10 bytes.
_MOST_ROADS = 4_000_000
# How often to look for terminals that have been silent since the end of their drive.
_LOOK_MS = 60_000
# How often passages of the map's obstructions are stored: a fleet makes many, and with those that
# change what is predicted all processes read the whole map again.
_COUNT_MS = 600_000


@dataclass(slots=True)
class _Ahead:
    """What is known of a terminal."""

    predictor: Predictor
    in_order: InOrder = field(default_factory=InOrder)
    route: Line | None = None
    announcements: list[Announcement] = field(default_factory=list)
    observed: ObservedBlockage | None = None
    # The last result, and when it was found; None: something has changed since.
    found: tuple[Blockage, ...] = ()
    found_ms: int | None = None
    leaps: Leaps = field(default_factory=Leaps)

    def is_fresh(self, now_ms: int) -> bool:
        """Tell whether the last result is still valid."""
        if self.found_ms is None or not 0 <= now_ms - self.found_ms < _STEADY_MS:
            return False
        if now_ms - self.found_ms < _FRESH_MS:
            return True
        # Standing vehicles, announcements, and blockages that have begun change with time alone.
        changes = self.predictor.track.standing_since_ms is not None or self.announcements
        lasts = self.observed is not None and self.observed.exit_ms is None
        return not changes and not lasts and all(one.entry_ms > now_ms for one in self.found)


class Predictions:
    """The blockages ahead of a beam's terminals.

    Without I/O and clock; times are UTC in ms since the Unix epoch.
    """

    def __init__(self, obstructions: ObstructionMap | None = None) -> None:
        self._map = obstructions or ObstructionMap([])
        self._terminals: dict[int, _Ahead] = {}
        self._lessons = Lessons()
        self._withdrawn = Withdrawn()
        # Terminals whose habits are not stored.
        self._unstored: set[int] = set()
        self._looked_ms = 0
        self._counted_ms = 0
        # Terminals whose positions contradict each other, and that still need a warning.
        self._leaping: set[int] = set()

    def set_map(
        self,
        obstructions: ObstructionMap,
        learned: Mapping[str, Learned] | None = None,
        satellite: str | None = None,
    ) -> None:
        """Take another map, for the satellite that the terminals use.

        `learned` are the learned places, by id, of other satellites too.
        """
        self._map = obstructions
        self._lessons.set_map(obstructions, learned or {}, satellite)
        for ahead in self._terminals.values():
            ahead.predictor = _made_again(obstructions, ahead)
            ahead.found_ms = None

    def set_habits(self, terminal: int, habits: Habits) -> None:
        """Take a terminal's stored habits, unless newer ones wait to be stored."""
        if terminal not in self._unstored:
            ahead = self._of(terminal)
            if habits != ahead.predictor.habits:
                track = ahead.predictor.track
                ahead.predictor = Predictor(self._map, track, ahead.route, habits)
                # Late fixes would lead back to the habits of before.
                ahead.in_order = InOrder()
                ahead.found_ms = None

    def set_route(self, terminal: int, route: Line | None) -> None:
        """Take the line that a terminal will drive; None where that is not known."""
        ahead = self._of(terminal)
        if route == ahead.route:
            # Where changes may have been missed, all routes are read, though few have changed.
            return
        ahead.route = route
        ahead.predictor = _made_again(self._map, ahead)
        ahead.found_ms = None

    def set_routes(self, lines: Mapping[int, Line]) -> None:
        """Take the lines that terminals will drive; those of all others are not known."""
        for terminal in self._terminals.keys() | lines.keys():
            self.set_route(terminal, lines.get(terminal))

    def feed(self, terminal: int, fix: Fix) -> bool:
        """Take a fix in; False where it says nothing of what is ahead, and changes nothing.

        A late fix that fills a gap of the track is put in its place once blockages are asked for,
        or the next fix comes.
        """
        ahead = self._of(terminal)
        predictor, last = ahead.predictor, ahead.predictor.track.last
        predictor.most_roads = self._most_roads()
        if last is not None and fix.time_ms <= last.time_ms:
            # It may be another vehicle's.
            if fix.time_ms < last.time_ms and ahead.leaps.came_late(last, fix):
                self._leaping.add(terminal)
            if not ahead.in_order.feed(predictor, fix):
                return False
            ahead.found_ms = None
            return True
        self._take_late(terminal, ahead)
        habits = predictor.habits
        if not ahead.in_order.feed(predictor, fix):
            return False
        # A track that has leapt begins anew.
        is_new = len(predictor.track.trail) == 1
        if last is not None and is_new and leaps(last, fix) and ahead.leaps.leapt(fix.time_ms):
            self._leaping.add(terminal)
        ahead.found_ms = None
        self._look(terminal, ahead, habits)
        return True

    def _take_late(self, terminal: int, ahead: _Ahead) -> None:
        habits = ahead.predictor.habits
        if ahead.in_order.take_late(ahead.predictor):
            self._look(terminal, ahead, habits)

    def _look(self, terminal: int, ahead: _Ahead, habits: Habits) -> None:
        """Note changed habits and learn, after fixes; `habits` are those of before."""
        if ahead.predictor.habits is not habits:
            self._unstored.add(terminal)
        observed = ahead.observed
        blocked_since_ms = observed.entry_ms if observed and observed.exit_ms is None else None
        self._lessons.look(terminal, ahead.predictor.track, blocked_since_ms)

    def take_leaping(self) -> set[int]:
        """Return the terminals to warn of, whose positions seem to be of several vehicles."""
        found, self._leaping = self._leaping, set()
        return found

    def announce(self, terminal: int, announcement: Announcement) -> None:
        """Take in a terminal's announcement; a repeated one changes nothing."""
        ahead = self._of(terminal)
        if announcement not in ahead.announcements:
            kept = sorted([*ahead.announcements, announcement], key=lambda one: one.announced_ms)
            ahead.announcements = kept[-_MOST_ANNOUNCEMENTS:]
            ahead.found_ms = None

    def observe(self, terminal: int, entry_ms: int, exit_ms: int | None) -> None:
        """Take in a loss of link, at its beginning and again, with its exit, at its end.

        Both ends of the link observe it: overlapping observations are the same loss. Do not call
        it when a node only holds back, which is no loss: `held_back` is for that.
        """
        ahead = self._of(terminal)
        self._lessons.entered(terminal, entry_ms, ahead.predictor.track.place_at(entry_ms))
        known = ahead.observed
        if known is not None and known.overlaps(entry_ms, exit_ms or entry_ms + 1):
            if known.exit_ms is not None or exit_ms is None:
                return
            ahead.observed = replace(known, exit_ms=max(exit_ms, known.entry_ms + 1))
        elif known is not None and entry_ms < known.entry_ms:
            # A late report: it teaches, but does not concern the present.
            if exit_ms is not None:
                self._lessons.lost(terminal, ObservedBlockage(entry_ms, exit_ms))
            return
        else:
            expected = self._expected(terminal, ahead, entry_ms)
            ahead.observed = ObservedBlockage(entry_ms, exit_ms, recognise(entry_ms, expected))
        ahead.found_ms = None
        if ahead.observed.exit_ms is not None:
            self._lessons.lost(terminal, ahead.observed)

    def held_back(
        self, terminal: int, entry_ms: int, exit_ms: int | None, *, by_plan: bool
    ) -> None:
        """Take in that a node held back, by plan or otherwise, at the beginning and at the end."""
        self._lessons.held_back(terminal, ObservedBlockage(entry_ms, exit_ms), by_plan=by_plan)

    def withdraw(self, said: Mapping[int, Mapping[int, Span]]) -> set[int]:
        """Take the blockages that operators have withdrawn, by terminal and number.

        Observed blockages still count. Return the terminals for which this changes something.
        """
        changed = self._withdrawn.set(said)
        for terminal in changed & self._terminals.keys():
            self._terminals[terminal].found_ms = None
        return changed

    def withdrawn_moved(self) -> dict[int, Span]:
        """Return by number the withdrawn blockages whose times differ from the stored ones."""
        return self._withdrawn.moved()

    def withdrawn_stored(self, moved: Mapping[int, Span]) -> None:
        """Note that these times are stored."""
        self._withdrawn.stored(moved)

    def is_blocked(self, terminal: int) -> bool:
        """Tell whether a terminal is in an observed blockage."""
        ahead = self._terminals.get(terminal)
        observed = None if ahead is None else ahead.observed
        return observed is not None and observed.exit_ms is None

    def forget(self, terminal: int) -> None:
        """Forget a terminal that has left the beam."""
        self._terminals.pop(terminal, None)
        self._unstored.discard(terminal)
        self._lessons.forget(terminal)

    def blockages_of(self, terminal: int, now_ms: int) -> tuple[Blockage, ...]:
        """Return a terminal's present and coming blockages, the next first."""
        ahead = self._terminals.get(terminal)
        if ahead is None:
            return ()
        if not ahead.is_fresh(now_ms):
            ahead.announcements = [
                one for one in ahead.announcements if one.entry_ms + one.duration_ms > now_ms
            ]
            expected = self._expected(terminal, ahead, now_ms)
            self._lessons.expect(terminal, expected, now_ms)
            left = self._withdrawn.left(terminal, expected, now_ms)
            ahead.found = as_observed(left, ahead.observed, now_ms)
            ahead.found_ms = now_ms
        return ahead.found

    def habits(self, now_ms: int) -> dict[int, Habits]:
        """Return the habits that have changed and are not stored yet."""
        if not 0 <= now_ms - self._looked_ms < _LOOK_MS:
            self._looked_ms = now_ms
            for terminal, ahead in self._terminals.items():
                track = ahead.predictor.track
                # A vehicle that is switched off when it parks does not report that it stands.
                if track.driven and track.last and now_ms - track.last.time_ms >= ENDED_SILENT_MS:
                    ahead.predictor.end_drive()
                    self._unstored.add(terminal)
        return {terminal: self._terminals[terminal].predictor.habits for terminal in self._unstored}

    def habits_stored(self, stored: Mapping[int, Habits]) -> None:
        """Note that these habits are stored."""
        for terminal, habits in stored.items():
            ahead = self._terminals.get(terminal)
            if ahead is not None and ahead.predictor.habits is habits:
                self._unstored.discard(terminal)

    def lessons(self) -> list[Lesson]:
        """Return the lessons that are not stored yet."""
        return self._lessons.unstored()

    def stored(self, count: int) -> None:
        """Note that the first `count` lessons are stored."""
        self._lessons.stored(count)

    def passages(self, now_ms: int) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the passages of the map's obstructions that are not stored, every ten minutes.

        They are how often the link was lost, and how often it held, by obstruction and terminal.
        """
        if 0 <= now_ms - self._counted_ms < _COUNT_MS:
            return {}
        self._counted_ms = now_ms
        return self._lessons.counted()

    def passages_stored(self, counts: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Note that these passages are stored."""
        self._lessons.counts_stored(counts)

    def _most_roads(self) -> int:
        """Return the most roads remembered of each terminal."""
        return min(_MOST_ROADS // max(len(self._terminals), 1), MOST_DRIVES * MOST_ROADS)

    def _of(self, terminal: int) -> _Ahead:
        ahead = self._terminals.get(terminal)
        if ahead is None:
            ahead = self._terminals[terminal] = _Ahead(Predictor(self._map))
        return ahead

    def _expected(self, terminal: int, ahead: _Ahead, now_ms: int) -> tuple[Blockage, ...]:
        self._take_late(terminal, ahead)
        said = [self._of_map(announcement) for announcement in ahead.announcements]
        return reconcile(ahead.predictor.blockages(now_ms), said, now_ms)

    def _of_map(self, announcement: Announcement) -> Announcement:
        """Remove the obstruction's name from an announcement if the map does not know it.

        Blockages of different obstructions are never the same, but an integrator's name for an
        obstruction may differ from the map's.
        """
        if announcement.obstruction_id in self._map.obstructions:
            return announcement
        return replace(announcement, obstruction_id=None)


def _made_again(obstructions: ObstructionMap, ahead: _Ahead) -> Predictor:
    """Return a predictor that continues from a terminal's state with another map or route."""
    predictor = ahead.predictor
    return Predictor(obstructions, predictor.track, ahead.route, predictor.habits)
