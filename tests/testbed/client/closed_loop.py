"""Clients that make one exchange after the other for a time: a mix of downloads and uploads."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.testbed import addresses
from tests.testbed.client.route import Route
from tests.testbed.client.transfer import download, upload
from tests.testbed.namespace import Namespace

_SEEDS = 16
_SMALLEST = 100
# A person's pause before the next page; senders have the next file ready.
_THINK_S = 0.5
_UPLOADS_OF_BROWSERS = 0.2
_LARGEST_UPLOAD_OF_BROWSERS = 100_000
# The part of exchanges that their client gives up, and the time after which at the latest, s.
_GIVEN_UP, _GIVEN_UP_WITHIN_S = 0.03, 3.0


@dataclass(frozen=True)
class Exchange:
    """One exchange; times are of `time.monotonic()`."""

    kind: Literal["download", "upload"]
    size: int
    half_close: bool
    route: str
    began_s: float
    ended_s: float
    error: str | None
    # Its client gave it up on purpose.
    given_up: bool

    @property
    def took_s(self) -> float:
        """Return the time that it took, including the connection's set-up."""
        return self.ended_s - self.began_s

    def __str__(self) -> str:
        half = ", half-closing" if self.half_close else ""
        return (
            f"{self.kind} of {self.size} B by {self.route}{half}, {self.took_s:.1f} s: {self.error}"
        )


@dataclass(frozen=True)
class Mix:
    """The number of clients of each kind; sizes are log-uniform.

    Browsers mostly download, upload a little, and pause between; senders upload all the time.
    """

    browsers: int
    senders: int
    largest: int


class ClosedLoop:
    """The clients, each in a thread of its own, until `finish`."""

    def __init__(
        self,
        namespace: Namespace,
        routes: Sequence[Route],
        mix: Mix,
        *,
        seed: int,
        until_s: float,
    ) -> None:
        """Begin; exchanges still running at `until_s`, of `time.monotonic()`, have failed."""
        self._namespace = namespace
        self._routes = routes
        self._mix = mix
        self._over = threading.Event()
        self._until_s = until_s
        self.exchanges: list[Exchange] = []
        self._threads = [
            threading.Thread(
                target=self._client,
                args=(random.Random(seed * 1000 + number), number < mix.senders),
                name=f"client-{number}",
                daemon=True,
            )
            for number in range(mix.browsers + mix.senders)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[Exchange]:
        """Begin no more exchanges, wait for the running ones, and return all."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        return self.exchanges

    def _client(self, random_: random.Random, sends: bool) -> None:
        while not self._over.is_set():
            if not sends:
                self._over.wait(random_.expovariate(1 / _THINK_S))
            self.exchanges.append(self._one(random_, sends=sends))

    def _one(self, random_: random.Random, *, sends: bool) -> Exchange:
        uploads = sends or random_.random() < _UPLOADS_OF_BROWSERS
        largest = self._mix.largest
        if uploads and not sends:
            largest = min(largest, _LARGEST_UPLOAD_OF_BROWSERS)
        size = round(math.exp(random_.uniform(math.log(_SMALLEST), math.log(largest))))
        route = random_.choice(self._routes)
        # A request that a proxy forwards is an HTTP message: its direction cannot end alone.
        half_close = random_.random() < 0.5 and route.kind != "forward"
        patience_s = math.inf
        if random_.random() < _GIVEN_UP:
            patience_s = random_.uniform(0.05, _GIVEN_UP_WITHIN_S)
        began_s = time.monotonic()
        try:
            transfer = (upload if uploads else download)(
                self._namespace,
                addresses.ORIGIN,
                size,
                route=route,
                seed=random_.randrange(_SEEDS),
                deadline_s=min(patience_s, self._until_s - began_s),
                half_close=half_close,
            )
            error = transfer.error
        except (AssertionError, ValueError) as wrong:
            error = f"a wrong answer: {wrong}"
        given_up = patience_s < math.inf and (error or "").startswith("TimeoutError")
        return Exchange(
            "upload" if uploads else "download",
            size,
            half_close,
            route.kind,
            began_s,
            time.monotonic(),
            error,
            given_up=given_up,
        )
