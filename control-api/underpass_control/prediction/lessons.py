"""What a beam's terminals teach of obstructions that no map has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dama.prediction import Blockage, ObstructionMap, Track
from dama.prediction.learning import Learned, held, learn, observe, passage
from underpass_control.prediction.darkness import Darkness

# Observations of a terminal that wait for its track to reach beyond them.
_MOST_WAITING = 8
# So long after a passage, reports of a loss on it have come: they wait for the link only.
_JUDGED_AFTER_MS = 30_000
# What is observed so near to a passage belongs to it.
_NEAR_MS = 10_000


@dataclass(frozen=True, slots=True)
class Lesson:
    """A change of what is known: a place learned or counted again, or one to forget."""

    id: str
    # None: forget it.
    learned: Learned | None


@dataclass(slots=True)
class _Pupil:
    """What a terminal has still to be asked."""

    waiting: list[Darkness] = field(default_factory=list)
    # Past losses, by which passages are judged.
    losses: list[Darkness] = field(default_factory=list)
    # Learned places that it was expected to pass, and when it should have left them.
    expected: dict[str, Blockage] = field(default_factory=dict)


class Lessons:
    """Learns places from losses, and unlearns them from passages on which the link held."""

    def __init__(self) -> None:
        self._map = ObstructionMap([])
        self._known: dict[str, Learned] = {}
        self._pupils: dict[int, _Pupil] = {}
        self._untold: dict[str, Lesson] = {}

    def set_map(self, obstructions: ObstructionMap, learned: Mapping[str, Learned]) -> None:
        """Take another map, with those of its obstructions that were learned."""
        self._map = obstructions
        self._known = dict(learned)
        for lesson in self._untold.values():
            self._apply(lesson)

    def forget(self, terminal: int) -> None:
        """Forget what is to be asked of a terminal."""
        self._pupils.pop(terminal, None)

    def lost(self, terminal: int, darkness: Darkness) -> None:
        """Take in a loss of link that is over."""
        pupil = self._pupils.setdefault(terminal, _Pupil())
        pupil.losses = [*pupil.losses, darkness][-_MOST_WAITING:]
        pupil.waiting = [*pupil.waiting, darkness][-_MOST_WAITING:]

    def expect(self, terminal: int, blockages: Iterable[Blockage]) -> None:
        """Take in what is expected of a terminal, to see whether it comes."""
        for blockage in blockages:
            if blockage.obstruction_id in self._known:
                pupil = self._pupils.setdefault(terminal, _Pupil())
                pupil.expected[blockage.obstruction_id] = blockage

    def look(self, terminal: int, track: Track) -> None:
        """See what a terminal's track, gone on, says of its losses and passages."""
        pupil = self._pupils.get(terminal)
        if pupil is None or track.last is None or not (pupil.waiting or pupil.expected):
            return
        now_ms = track.last.time_ms
        waiting, pupil.waiting = pupil.waiting, []
        for darkness in waiting:
            if darkness.exit_ms is None or darkness.exit_ms > now_ms:
                pupil.waiting.append(darkness)
                continue
            seen = observe(track, darkness.entry_ms, darkness.exit_ms)
            if seen is not None:
                new_id = f"learned:{terminal}:{darkness.entry_ms}"
                known = tuple(self._known.values())
                self._change(learn(known, seen, self._map, new_id=new_id))
        for name, blockage in list(pupil.expected.items()):
            if now_ms >= blockage.exit_ms + _JUDGED_AFTER_MS:
                del pupil.expected[name]
                self._judge(name, pupil, track)

    def take(self) -> list[Lesson]:
        """Return the changes since the last time, to be stored."""
        untold, self._untold = self._untold, {}
        return list(untold.values())

    def _judge(self, name: str, pupil: _Pupil, track: Track) -> None:
        place = self._known.get(name)
        passed = None if place is None else passage(place, track)
        if passed is None:
            return
        begin_ms, end_ms = passed[0] - _NEAR_MS, passed[1] + _NEAR_MS
        if not any(loss.overlaps(begin_ms, end_ms) for loss in pupil.losses):
            self._change(held(self._known.values(), name))

    def _change(self, places: Iterable[Learned]) -> None:
        now = {place.id: place for place in places}
        for name in self._known.keys() - now.keys():
            self._untold[name] = Lesson(name, None)
        for name, place in now.items():
            if self._known.get(name) != place:
                self._untold[name] = Lesson(name, place)
        self._known = now

    def _apply(self, lesson: Lesson) -> None:
        if lesson.learned is None:
            self._known.pop(lesson.id, None)
        else:
            self._known[lesson.id] = lesson.learned
