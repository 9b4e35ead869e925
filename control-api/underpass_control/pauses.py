"""How long to wait before a failed action is tried again."""

from __future__ import annotations

# The wait after the first failure; it doubles after each further one.
_FIRST_AGAIN_MS = 5_000
_LONGEST_AGAIN_MS = 3_600_000
# The longest wait, which this many doublings reach.
_MOST_DOUBLINGS = 20


def again_after_ms(failures: int, drawn: float, longest_ms: int = _LONGEST_AGAIN_MS) -> int:
    """Return how long to wait after this many failures in a row.

    `drawn` is random, from 0 to 1, so that actions that failed together are not all repeated at
    once.
    """
    most_ms = min(_FIRST_AGAIN_MS << min(failures - 1, _MOST_DOUBLINGS), longest_ms)
    return round(most_ms * (0.5 + drawn / 2))
