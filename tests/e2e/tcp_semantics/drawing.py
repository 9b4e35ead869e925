"""Draws scripts: a seed gives the same script everywhere."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

from tests.e2e.tcp_semantics.model import Allowed, UnfitError, allowed
from tests.e2e.tcp_semantics.script import (
    Await,
    End,
    Op,
    Pace,
    Pause,
    Script,
    Send,
    SendUntilReset,
    Shut,
)

_LARGEST_SEND = 1_000_000
_LONGEST_PAUSE_MS = 1500
# A slow reader takes at most this long for everything that it may get.
_SLOW_READ_MS = 2000


def scripts(first_seed: int) -> Iterator[tuple[Script, Allowed]]:
    """Yield scripts without end, each with its allowed outcomes; unfit ones are left out."""
    for seed in itertools.count(first_seed):
        try:
            script = drawn(seed)
            yield script, allowed(script)
        except UnfitError:
            continue


def drawn(seed: int) -> Script:
    """Return a seed's script; raise `UnfitError` if it cannot be run."""
    random_ = random.Random(seed)
    sends = [_sends(random_), _sends(random_)]
    ends = [_end(random_, sends[here], sends[1 - here]) for here in (0, 1)]
    for end, other in (ends, ends[::-1]):
        if any(isinstance(op, SendUntilReset) for op in end.ops) and not (
            other.leaves or other.limit is not None
        ):
            raise UnfitError("it sends without end to one that reads to the end")
    return Script(str(seed), ends[0], ends[1], eager=random_.random() < 0.3)


def _sends(random_: random.Random) -> list[int]:
    count = random_.choice((0, 1, 1, 2, 2, 3))
    return [round(math.exp(random_.uniform(0, math.log(_LARGEST_SEND)))) for _ in range(count)]


def _end(random_: random.Random, sends: list[int], others: list[int]) -> End:
    boundaries = list(itertools.accumulate(others))
    limit = None
    if random_.random() < 0.25:
        limit = random_.choice([0, *boundaries])
    leaves = random_.random() < 0.1
    ops: list[Op] = []
    for size in sends:
        ops += _before(random_, boundaries, limit)
        ops.append(Send(size))
    if random_.random() < 0.06:
        ops.append(SendUntilReset())
    elif random_.random() < 0.5:
        ops += _before(random_, boundaries, limit)
        ops.append(Shut())
    if leaves or random_.random() < 0.3:
        ops += _before(random_, boundaries, limit)
    return End(
        tuple(ops),
        limit,
        _pace(random_, sum(others)),
        leaves,
        "abort" if random_.random() < 0.12 else "close",
    )


def _before(random_: random.Random, boundaries: list[int], limit: int | None) -> list[Op]:
    """Draw the wait, if any, of an end before its next step."""
    ops: list[Op] = []
    if random_.random() < 0.3:
        ops.append(Pause(round(random_.uniform(1, _LONGEST_PAUSE_MS))))
    reachable = [size for size in boundaries if limit is None or size <= limit]
    if random_.random() < 0.25 and reachable:
        ops.append(Await(random_.choice(reachable)))
    elif random_.random() < 0.1 and limit is None:
        ops.append(Await(None))
    return ops


def _pace(random_: random.Random, most: int) -> Pace:
    after_ms = round(random_.uniform(0, 500)) if random_.random() < 0.2 else 0
    if random_.random() < 0.75:
        return Pace(after_ms)
    pause_ms = random_.randrange(5, 50)
    return Pace(after_ms, max(1000, most * pause_ms // _SLOW_READ_MS), pause_ms)
