"""Small echoes in a higher class while a download saturates the link."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.bench import Bench, Series, Settings, bench, say
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.testbed import ports
from tests.testbed.client.echo import echo_times
from tests.testbed.profile import PROFILE_V

_ECHOES = 100
_INTERVAL_S = 0.05
_PATIENCE_S = 60.0
_SATURATED_AFTER_S = 20.0
_HUGE = 100_000_000_000
_LOAD_S = 3600.0


@dataclass(frozen=True)
class _Echoes:
    """One run's echo times, and the load beside them."""

    times_s: list[float]
    load_bps: float
    last_byte_s: float | None = None

    @property
    def p95_ms(self) -> float:
        """Return the 95th percentile of the times beyond the round trip."""
        return 1000 * (quantile(self.times_s, 0.95) - PROFILE_V.rtt_s)


def run(settings: Settings) -> Result:
    """Measure each run's 95th percentile of echo times beyond the round trip."""
    result = Result("echo")
    with bench(PROFILE_V, settings) as on:
        series = [Series(subject, partial(_one, on, subject)) for subject in on.subjects]
        for subject, runs in zip(on.subjects, on.in_turn(series, 30), strict=True):
            result.samples[subject.name] = [one.times_s for one in runs]
            load_bps = statistics.median(one.load_bps for one in runs)
            result.notes[f"load beside {subject.name}, Mbit/s"] = round(load_bps / 1e6, 2)
            made = record("echo.v", subject.name, [one.p95_ms for one in runs])
            say(f"echo  {subject.name}: p95 is RTT + {made.median:.0f} ms")
            result.records.append(made)
        on.describe(result)
    return result


def _one(on: Bench, subject: Subject, bulk: Access, _seed: int, _deadline_s: float) -> _Echoes:
    access = subject.access(ports.ECHO)
    with _saturated(on, bulk):
        began = time.monotonic()
        try:
            with access.route.connect(
                access.client, access.host, access.port, timeout_s=_PATIENCE_S
            ) as sock:
                times = echo_times(
                    sock, count=_ECHOES, interval_s=_INTERVAL_S, timeout_s=_PATIENCE_S
                )
        except OSError as error:
            say(f"echo  {subject.name}: {error}; all of the run count with the time limit")
            times = [_PATIENCE_S] * _ECHOES
        load_bps = on.sent_bytes("forward") * 8 / (time.monotonic() - began)
    return _Echoes(times, load_bps)


@contextmanager
def _saturated(on: Bench, access: Access) -> Iterator[None]:
    """Run a download in a thread; enter the context once the link has had time to fill."""
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            access.download(_HUGE, 1, _LOAD_S, stop=stop)

    thread = threading.Thread(target=load, name="bulk")
    thread.start()
    try:
        time.sleep(_SATURATED_AFTER_S)
        on.testbed.satlink.reset_statistics()
        yield
    finally:
        stop.set()
        thread.join()
