"""The island's roads as a driver sees them: pieces between crossings, and what may follow."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tests.drives.island import Island, Metres, Way


@dataclass(frozen=True)
class Piece:
    """A way between two crossings, in the direction in which it is driven.

    `pace` is the part of its limit that traffic leaves.
    """

    way: Way
    points: tuple[Metres, ...]
    pace: float = 1.0

    @property
    def heading(self) -> float:
        """Direction at the beginning, in radians from north."""
        return _heading(self.points[0], self.points[1])

    @property
    def final_heading(self) -> float:
        """Direction at the end, in radians from north."""
        return _heading(self.points[-2], self.points[-1])

    @property
    def length_m(self) -> float:
        """Length in metres."""
        return sum(math.dist(a, b) for a, b in pairwise(self.points))

    def is_back(self, other: Piece) -> bool:
        """Tell whether it is the other one, driven back."""
        return self.points == other.points[::-1]


def _heading(a: Metres, b: Metres) -> float:
    return math.atan2(b[0] - a[0], b[1] - a[1])


class Roads:
    """All pieces, and which leave a crossing."""

    def __init__(self, island: Island) -> None:
        used = Counter(point for way in island.ways for point in way.points)
        self.signals = island.signals
        self.pieces: list[Piece] = []
        self._from: dict[Metres, list[Piece]] = defaultdict(list)
        for way in island.ways:
            last = len(way.points) - 1
            cuts = [n for n, p in enumerate(way.points) if n in (0, last) or used[p] > 1]
            for first, end in pairwise(cuts):
                points = way.points[first : end + 1]
                for driven in [points] if way.oneway else [points, points[::-1]]:
                    piece = Piece(way, driven)
                    self.pieces.append(piece)
                    self._from[driven[0]].append(piece)

    def route(self, dice: random.Random, length_m: float) -> list[Piece]:
        """Return a way that some driver takes: mostly straight on, seldom back."""
        # Nobody begins in a tunnel; long roads are begun on more often.
        open_pieces = [piece for piece in self.pieces if not piece.way.covered]
        weights = [min(piece.length_m, 3_000.0) for piece in open_pieces]
        route = dice.choices(open_pieces, weights)
        driven = route[0].length_m
        while driven < length_m or route[-1].way.covered:
            piece = self._next(dice, route[-1])
            if piece is None:
                break
            route.append(piece)
            driven += piece.length_m
        return route

    def _next(self, dice: random.Random, piece: Piece) -> Piece | None:
        choices = [step for step in self._from[piece.points[-1]] if not step.is_back(piece)]
        if not choices:
            return None
        straight = min(choices, key=lambda step: turn(piece, step))
        # The road goes on where its name does; seven of eight drivers stay on it.
        stay = next((s for s in choices if s.way.tags["name"] == piece.way.tags["name"]), straight)
        return stay if dice.random() < 7 / 8 else dice.choice(choices)


def turn(before: Piece, after: Piece) -> float:
    """Return the angle between two pieces, in radians, 0 to π."""
    turned = after.heading - before.final_heading
    return abs(math.remainder(turned, math.tau))
