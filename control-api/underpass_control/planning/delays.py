"""How long a plan takes to reach the nodes that follow it, by their acknowledgements."""

from __future__ import annotations

from collections import deque

from dama.planner import Link

# Assumed until nodes have acknowledged some plans: the way to the hub. A terminal is one more hop.
DEFAULT_MS = 200
_LEAST_MS, _MOST_MS = 50, 3_000
# A blocked node acknowledges only after its blockage, which says nothing of the delay.
_LATE_MS = 5_000
_KEPT = 64
_ENOUGH = 8
# The delay is set so that nine plans of ten arrive in time; later ones are followed on arrival.
_PART = 0.9
_MARGIN_MS = 20


class Delays:
    """The signalling delay of both links of a beam: how far ahead its plans start."""

    def __init__(self) -> None:
        self._known: dict[Link, deque[int]] = {link: deque(maxlen=_KEPT) for link in Link}
        self._followers: dict[Link, set[int]] = {link: set() for link in Link}
        self.one_way_ms = 0

    def acknowledged(self, link: Link, node: int, after_ms: int, *, by_terminal: bool) -> None:
        """Note how long after its issue a plan reached a node; only the node that sends counts."""
        if by_terminal != (link is Link.RETURN):
            return
        if node not in self._followers[link]:
            # The first plan may have waited until the node was connected.
            self._followers[link].add(node)
        elif 0 <= after_ms <= _LATE_MS:
            self._known[link].append(after_ms)

    def of(self, link: Link) -> int:
        """Return how long before its start a plan has to be made, in ms."""
        known = sorted(self._known[link])
        if len(known) < _ENOUGH:
            return DEFAULT_MS + (self.one_way_ms if link is Link.RETURN else 0)
        usual = known[min(len(known) - 1, int(_PART * len(known)))]
        return min(max(usual + _MARGIN_MS, _LEAST_MS), _MOST_MS)
