"""One soak: clients in a closed loop on a hop with loss and blockages, and its results."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.testbed.client.closed_loop import ClosedLoop, Exchange, Mix
from tests.testbed.client.route import DIRECT
from tests.testbed.node import Options, Pair, all_listeners
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

PROFILE = PROFILE_V.with_loss(0.001)
_DISK = {"custody": {"durability": "disk"}}
_EVERY_S = 30.0
_SHORTEST_S, _LONGEST_S = 1.0, 25.0
_SMALL = 10_000
# A small exchange counts if the next blockage is at least this time and a round trip away.
_SMALL_TARGET_S = 0.5
_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Plan:
    """How long new exchanges begin, how long the last may then take, and the clients' mix."""

    duration_s: float
    drain_s: float
    mix: Mix
    seed: int = 1


@dataclass(frozen=True)
class Sample:
    """A node's resident memory at a time, s after the beginning."""

    at_s: float
    resident: dict[str, int]


@dataclass
class Course:
    """The results of a soak; the blockages' times use the exchanges' clock."""

    exchanges: list[Exchange]
    blockages: list[tuple[float, float]]
    samples: list[Sample]

    @property
    def failed(self) -> list[Exchange]:
        """Return the exchanges that failed or never ended, except those that a client gave up."""
        return [each for each in self.exchanges if each.error and not each.given_up]

    @property
    def small(self) -> list[float]:
        """Return the times of small exchanges that began long enough before a blockage, s.

        An exchange also counts if it is so slow that it meets the next blockage.
        """
        return [
            each.took_s
            for each in self.exchanges
            if each.size <= _SMALL and not each.given_up and self._clear(each.began_s)
        ]

    def memory(self, node: str, from_s: float, to_s: float) -> float:
        """Return a node's median resident memory between two times, bytes."""
        values = [each.resident[node] for each in self.samples if from_s <= each.at_s < to_s]
        return statistics.median(values)

    def _clear(self, at: float) -> bool:
        before_s = PROFILE.rtt_s + _SMALL_TARGET_S
        return not any(
            start - before_s < at < start + length + PROFILE.rtt_s
            for start, length in self.blockages
        )


def start_pair(testbed: Testbed) -> Pair[Testbed]:
    """Start nodes with custody on disk, and listeners of every kind for clients."""
    return Pair(testbed, Options(terminal={**_DISK, "edge": all_listeners(0)}, hub=_DISK))


def soak(pair: Pair[Testbed], plan: Plan) -> Course:
    """Run a soak; exchanges may run until `drain_s` after the last one has begun."""
    began = time.monotonic()
    blockages = _blockages(plan, began)
    pair.testbed.satlink.schedule(pair.testbed.terminal.name, blockages)
    routes = [pair.socks5(), pair.http_connect(), pair.http_forward(), DIRECT]
    samples: list[Sample] = []
    over = threading.Event()

    def watch() -> None:
        nodes = (pair.terminal, pair.hub)
        while not over.wait(_SAMPLE_S):
            resident = {node.name: node.process.resident_bytes() for node in nodes}
            samples.append(Sample(time.monotonic() - began, resident))

    watcher = threading.Thread(target=watch, name="memory")
    watcher.start()
    try:
        clients = ClosedLoop(
            pair.client,
            routes,
            plan.mix,
            seed=plan.seed,
            until_s=began + plan.duration_s + plan.drain_s,
        )
        time.sleep(plan.duration_s)
        exchanges = clients.finish()
    finally:
        over.set()
        watcher.join()
    return Course(exchanges, blockages, samples)


def _blockages(plan: Plan, began: float) -> list[tuple[float, float]]:
    """Draw a blockage for each half minute but the first, while exchanges begin."""
    random_ = random.Random(plan.seed)
    return [
        (began + number * _EVERY_S, random_.uniform(_SHORTEST_S, _LONGEST_S))
        for number in range(1, int(plan.duration_s / _EVERY_S))
    ]


def blocked_s(blockages: Sequence[tuple[float, float]]) -> float:
    """Return the total blocked time, s."""
    return sum(length for _, length in blockages)
