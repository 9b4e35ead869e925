"""How long to wait before what has failed is tried again."""

from __future__ import annotations

# After the first failure it is tried again after so long, then twice as long, and so on.
_FIRST_AGAIN_MS = 5_000
_LONGEST_AGAIN_MS = 3_600_000
# Who fails always is put off for no longer, so that this many doublings are enough.
_MOST_DOUBLINGS = 20


def again_after_ms(failures: int, drawn: float, longest_ms: int = _LONGEST_AGAIN_MS) -> int:
    """Return after which time to try again what has failed so often in a row.

    `drawn` is from 0 to 1: what has failed at the same time does not all come back at once.
    """
    most_ms = min(_FIRST_AGAIN_MS << min(failures - 1, _MOST_DOUBLINGS), longest_ms)
    return round(most_ms * (0.5 + drawn / 2))
