"""Blockages that an operator has withdrawn: each stays withdrawn until its passage is over."""

from __future__ import annotations

from collections.abc import Mapping

from dama.prediction import Blockage, Span
from dama.prediction.same import OBSERVED_MS, is_same_passage, matched

# How far a withdrawn blockage has to move before its new times are stored.
_MOVED_MS = 5_000


class Withdrawn:
    """The withdrawn blockages of a beam's terminals.

    A vehicle that is delayed on its way meets the same obstruction later. So the times of a
    withdrawn blockage follow its predictions; once they are past, the next passage is another
    blockage.
    """

    def __init__(self) -> None:
        # By terminal and number of the withdrawal: as it was last predicted.
        self._spans: dict[int, dict[int, Span]] = {}
        # By terminal: what else was expected when they were last looked at.
        self._others: dict[int, tuple[Span, ...]] = {}
        # As they are stored.
        self._stored: dict[int, Span] = {}

    def set(self, said: Mapping[int, Mapping[int, Span]]) -> set[int]:
        """Take all withdrawn blockages, instead of the former; return the terminals concerned."""
        changed = {
            terminal
            for terminal in said.keys() | self._spans.keys()
            if said.get(terminal, {}).keys() != self._spans.get(terminal, {}).keys()
        }
        self._stored = {number: span for of in said.values() for number, span in of.items()}
        self._spans = {
            terminal: {
                number: self._spans.get(terminal, {}).get(number, span)
                for number, span in of.items()
            }
            for terminal, of in said.items()
        }
        self._others = {one: of for one, of in self._others.items() if one in said}
        return changed

    def left(
        self, terminal: int, expected: tuple[Blockage, ...], now_ms: int
    ) -> tuple[Blockage, ...]:
        """Return a terminal's expected blockages without the withdrawn ones."""
        spans = self._spans.get(terminal)
        if not spans:
            return expected
        numbers = [n for n, span in spans.items() if now_ms <= span.exit_ms + OBSERVED_MS]
        known = [spans[number] for number in numbers]
        # Among the passages of one obstruction, the other ones tell which is withdrawn. Blockages
        # withdrawn since the last look are left out of the others.
        known += [
            one
            for one in self._others.get(terminal, ())
            if not any(is_same_passage(one, span) for span in spans.values())
        ]
        same = matched(known, [one.span for one in expected], now_ms)
        left: list[Blockage] = []
        for place, found in enumerate(expected):
            which = same.get(place, len(numbers))
            if which < len(numbers):
                name = found.obstruction_id or known[which].obstruction_id
                spans[numbers[which]] = Span(name, found.entry_ms, found.exit_ms)
            else:
                left.append(found)
        self._others[terminal] = tuple(one.span for one in left)
        return tuple(left)

    def moved(self) -> dict[int, Span]:
        """Return by number the blockages whose times differ from the stored ones."""
        return {
            number: span
            for of in self._spans.values()
            for number, span in of.items()
            if abs(span.entry_ms - self._stored[number].entry_ms) >= _MOVED_MS
            or abs(span.exit_ms - self._stored[number].exit_ms) >= _MOVED_MS
        }

    def stored(self, moved: Mapping[int, Span]) -> None:
        """Note that these times are stored."""
        self._stored |= {number: span for number, span in moved.items() if number in self._stored}
