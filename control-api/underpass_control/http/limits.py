"""Limits of request rates: token buckets, one for each key."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable

from underpass_control.http.problem import too_many

# The most keys remembered; beyond that, the one used longest ago is forgotten.
_MOST_KEYS = 10_000


class Buckets:
    """Buckets that hold `burst` requests and fill at `per_s`; memory is bounded.

    A key that has been forgotten has a full bucket again. Times are in seconds of any clock that
    only goes forward.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        # By key: what was left in the bucket, and when.
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable, now_s: float, count: int = 1) -> float:
        """Take requests out of a key's bucket, all of them or none.

        Returns:
            0 if there were enough; otherwise the seconds until there will be, and nothing is taken.
        """
        left = self._now(key, now_s)
        if left < count:
            return (count - left) / self._per_s
        self._set(key, left - count, now_s)
        return 0.0

    def give_back(self, key: Hashable, now_s: float) -> None:
        """Put back a request that does not count."""
        self._set(key, min(self._now(key, now_s) + 1, self._burst), now_s)

    def _now(self, key: Hashable, now_s: float) -> float:
        left, at_s = self._left.get(key, (self._burst, now_s))
        return min(left + (now_s - at_s) * self._per_s, self._burst)

    def _set(self, key: Hashable, left: float, now_s: float) -> None:
        self._left[key] = left, now_s
        self._left.move_to_end(key)
        if len(self._left) > _MOST_KEYS:
            self._left.popitem(last=False)


def admit(buckets: Buckets, key: Hashable, count: int = 1) -> None:
    """Count requests that are made now.

    Raises:
        Problem: 429, there are too many.
    """
    wait_s = buckets.take(key, time.monotonic(), count)
    if wait_s > 0:
        raise too_many(wait_s)
