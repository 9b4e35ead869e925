"""Small echoes in a higher class while a download saturates the link."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.bench import Bench, Settings, bench, say
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.testbed import ports
from tests.testbed.client.echo import echo_times
from tests.testbed.client.transfer import download
from tests.testbed.profile import PROFILE_V

_ECHOES = 100
_INTERVAL_S = 0.05
_SATURATED_AFTER_S = 20.0
_HUGE = 100_000_000_000
_LOAD_S = 3600.0


def run(settings: Settings) -> Result:
    """Measure per run the 95th percentile of the echoes' times beyond the round trip."""
    result = Result("echo")
    with bench(PROFILE_V, settings) as on:
        for subject in on.subjects:
            on.rest(subject)
            with _saturated(on, subject):
                began = time.monotonic()
                times = [_one(subject.access(ports.ECHO)) for _ in range(on.runs(30))]
                load_bps = on.sent_bytes("forward") * 8 / (time.monotonic() - began)
            result.notes[f"load beside {subject.name}, Mbit/s"] = round(load_bps / 1e6, 2)
            on.drain()
            made = record("echo.v", subject.name, times)
            say(f"echo  {subject.name}: p95 is RTT + {made.median:.0f} ms")
            result.records.append(made)
        result.notes |= on.notes()
    return result


def _one(access: Access) -> float:
    with access.route.connect(access.client, access.host, access.port, timeout_s=60) as sock:
        times = echo_times(sock, count=_ECHOES, interval_s=_INTERVAL_S, timeout_s=60)
    return 1000 * (quantile(times, 0.95) - PROFILE_V.rtt_s)


@contextmanager
def _saturated(on: Bench, subject: Subject) -> Iterator[None]:
    """Keep a download going in a thread, and begin when the link has had time to fill."""
    subject.before_series()
    stop = threading.Event()
    access = subject.access()

    def load() -> None:
        while not stop.is_set():
            download(
                access.client,
                access.host,
                _HUGE,
                port=access.port,
                route=access.route,
                deadline_s=_LOAD_S,
                stop=stop,
            )

    thread = threading.Thread(target=load, name="bulk")
    thread.start()
    try:
        time.sleep(_SATURATED_AFTER_S)
        on.testbed.satlink.reset_statistics()
        yield
    finally:
        stop.set()
        thread.join()
        subject.after_series()
