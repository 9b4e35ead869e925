"""How long a plan takes to reach the nodes that follow it: making it, and sending it to them."""

from __future__ import annotations

from collections import deque

from dama.planner import Link

# The time to the hub, until nodes have acknowledged some plans. A terminal is one hop further.
DEFAULT_MS = 200
_LEAST_MS, _MOST_MS = 50, 3_000
# A later acknowledgement does not count: a blocked node acknowledges only after its blockage.
_LATE_MS = 5_000
_KEPT = 64
_ENOUGH = 8
# The delay is set so that nine plans of ten arrive in time; later ones are followed on arrival.
_PART = 0.9
_MARGIN_MS = 20
# A plan is expected to take no longer than the longest of this many before it. A larger number
# would delay quick plans after slow ones: a node keeps only one plan that has not begun.
_RECENT = 3
# If plans take longer, there are gaps between them: the next one begins only after several times as
# long (`planning.controller`), and a plan ends 180 s after its issue.
_MOST_MAKING_MS = 20_000
# The furthest ahead that plans start.
MOST_AHEAD_MS = _MOST_MAKING_MS + _MOST_MS
# A plan that would arrive after its start by no more than this keeps its start and is followed on
# arrival: the time for making a plan is not known more exactly.
_TOLERATED_MS = 100


class Delays:
    """The signalling delay of both links of a beam: how far ahead its plans start."""

    def __init__(self) -> None:
        self._ways: dict[Link, deque[int]] = {link: deque(maxlen=_KEPT) for link in Link}
        # By version, how long after its issue a plan was stored, the newest last.
        self._makings: dict[Link, dict[int, int]] = {link: {} for link in Link}
        self._followers: dict[Link, set[int]] = {link: set() for link in Link}
        self.one_way_ms = 0

    def made(self, link: Link, version: int, making_ms: int) -> None:
        """Note how long after its issue a plan was stored."""
        makings = self._makings[link]
        makings[version] = making_ms
        if len(makings) > _KEPT:
            del makings[next(iter(makings))]

    def acknowledged(
        self, link: Link, node: int, version: int, after_ms: int, *, by_terminal: bool
    ) -> None:
        """Note how long after its issue a plan reached a node; only the sending node counts.

        Plans of other processes are left out: the time for making them is unknown.
        """
        if by_terminal != (link is Link.RETURN):
            return
        if node not in self._followers[link]:
            # The first plan may have waited until the node was connected.
            self._followers[link].add(node)
        elif version in self._makings[link]:
            way_ms = after_ms - self._makings[link][version]
            if 0 <= way_ms <= _LATE_MS:
                self._ways[link].append(way_ms)

    def of(self, link: Link) -> int:
        """Return how long before a plan's start its making has to begin, in ms."""
        recent = list(self._makings[link].values())[-_RECENT:]
        return min(max(recent, default=0), _MOST_MAKING_MS) + self._way_ms(link)

    def late_ms(self, link: Link, start_ms: int, now_ms: int) -> int:
        """Return by how much to delay the start of a plan that is ready now; 0: not at all."""
        late_ms = now_ms + self._way_ms(link) - start_ms
        return late_ms if late_ms > _TOLERATED_MS or now_ms >= start_ms else 0

    def _way_ms(self, link: Link) -> int:
        known = sorted(self._ways[link])
        if len(known) < _ENOUGH:
            return DEFAULT_MS + (self.one_way_ms if link is Link.RETURN else 0)
        usual = known[min(len(known) - 1, int(_PART * len(known)))]
        return min(max(usual + _MARGIN_MS, _LEAST_MS), _MOST_MS)
