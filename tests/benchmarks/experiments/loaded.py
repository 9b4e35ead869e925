"""A link under load: a download for a time, with echoes and small objects beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.benchmarks.bench import HEADERS_LEAVE, Bench, Series, say
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.testbed import ports
from tests.testbed.client.echo import echo_times
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import Profile
from tests.traces.trace import Step, Trace

_ENDLESS = 1_000_000_000_000
_ECHO_EACH_S = 0.2
_SMALL_EACH_S = 1.0
_SMALL_BYTES = 10_000
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Load:
    """When the load ends, and from when on it counts, s from the trace's beginning."""

    seconds: float
    from_s: float


@dataclass(frozen=True)
class Loaded:
    """The results of one run; all times count from the trace's beginning."""

    trace: Trace
    load: Load
    bulk: Transfer
    # When each began, s, and its time beyond the round trip, ms.
    echoes: list[tuple[float, float]]
    smalls: list[tuple[float, float]]
    # Time, s, and the age of the queue's oldest packet, ms.
    queue: list[tuple[float, float]]
    last_byte_s: float | None = field(default=None)

    @property
    def goodput_percent(self) -> float:
        """Return the bytes received, in percent of the link's capacity after headers."""
        at_link_s = self.trace.at("forward", 0.0).delay_ms / 1000
        begin_s, end_s = self.load.from_s, self.load.seconds
        received = self.bulk.bytes_at(end_s) - self.bulk.bytes_at(begin_s)
        carried = self.trace.carried_bits("forward", begin_s - at_link_s, end_s - at_link_s)
        return 100 * 8 * received / (carried * HEADERS_LEAVE)

    def p95(self, samples: Sequence[tuple[float, float]]) -> float:
        """Return the 95th percentile of the samples that count."""
        return quantile([value for at_s, value in samples if at_s >= self.load.from_s], 0.95)


def constant(profile: Profile, rate_bps: int | None = None) -> Trace:
    """Return a constant trace of a profile, optionally with another forward rate."""
    forward, return_ = profile.forward, profile.return_
    rate = rate_bps or forward.rate_bps
    assert rate is not None
    assert return_.rate_bps is not None
    return Trace(
        profile.name,
        "a profile of the test bed",
        0.0,
        [Step(0.0, rate, forward.delay_ms, forward.loss)],
        [Step(0.0, return_.rate_bps, return_.delay_ms, return_.loss)],
    )


def loaded_series(on: Bench, trace: Trace, load: Load, *, runs: int = 3) -> list[list[Loaded]]:
    """Run every subject under load on a trace, in turn."""

    def series(subject: Subject) -> Series[Loaded]:
        return Series(subject, lambda access, seed, _: _one(on, subject, access, trace, load, seed))

    return on.in_turn([series(subject) for subject in on.subjects], runs)


def _one(
    on: Bench, subject: Subject, access: Access, trace: Trace, load: Load, seed: int
) -> Loaded:
    began = on.testbed.satlink.follow(trace)
    stop = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        bulk = pool.submit(access.download, _ENDLESS, seed, load.seconds, stop=stop)
        echoes = pool.submit(_echoes, subject, began, load.seconds)
        smalls = pool.submit(_smalls, access, began, load.seconds)
        time.sleep(max(0.0, began + load.seconds - time.monotonic()))
        queue = on.testbed.satlink.queue_ms(on.testbed.terminal.name, "forward")
        transfer = bulk.result()
        if not (transfer.error or "").startswith("TimeoutError"):
            say(f"{subject.name}: the download ended: {transfer.error}")
        beyond = [
            [(at_s, 1000 * (took_s - trace.rtt_s(at_s))) for at_s, took_s in of.result()]
            for of in (echoes, smalls)
        ]
    on.testbed.satlink.unfollow()
    counted = [(at - began, waited) for at, waited in queue]
    return Loaded(trace, load, transfer, beyond[0], beyond[1], counted)


def _echoes(subject: Subject, began: float, seconds: float) -> list[tuple[float, float]]:
    """Send an echo every 0.2 s; one that never comes back counts with the time limit."""
    access = subject.access(ports.ECHO)
    count = int((seconds - 1) / _ECHO_EACH_S)
    try:
        with access.route.connect(
            access.client, access.host, access.port, timeout_s=_PATIENCE_S
        ) as sock:
            first = time.monotonic() - began
            took = echo_times(sock, count=count, interval_s=_ECHO_EACH_S, timeout_s=_PATIENCE_S)
    except OSError as error:
        say(f"{subject.name}: the echo's connection ended: {error}")
        return [(seconds, _PATIENCE_S)]
    return [(first + place * _ECHO_EACH_S, one) for place, one in enumerate(took)]


def _smalls(access: Access, began: float, seconds: float) -> list[tuple[float, float]]:
    """Begin a small download each second, without waiting for earlier ones."""
    count = int((seconds - 1) / _SMALL_EACH_S)

    def one(place: int) -> tuple[float, float]:
        at_s = _SMALL_EACH_S / 2 + place * _SMALL_EACH_S
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        done = access.download(_SMALL_BYTES, place, _PATIENCE_S)
        return at_s, _PATIENCE_S if done.last_byte_s is None else done.last_byte_s

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def each_quarter_second(queue: Sequence[float]) -> list[float]:
    """Return each quarter second's maximum: samples 10 ms apart would be tens of thousands."""
    return [max(queue[place : place + 25]) for place in range(0, len(queue), 25)]


def add_records(
    result: Result, name: str, subject: Subject, runs: Sequence[Loaded]
) -> dict[str, float]:
    """Add a subject's records of an experiment under load; return their medians."""
    values: dict[str, Callable[[Loaded], float]] = {
        "goodput": lambda one: one.goodput_percent,
        "queue": lambda one: one.p95(one.queue),
        "echo": lambda one: one.p95(one.echoes),
        "small": lambda one: one.p95(one.smalls),
    }
    # Without traffic there is no queue, however slow a subject is.
    moved = [run for run in runs if run.goodput_percent > 0]
    if still := len(runs) - len(moved):
        result.notes[f"{name}, {subject.name}: runs that moved nothing, without a queue"] = still
    medians = {}
    for figure, of in values.items():
        counted = moved if figure == "queue" else runs
        if not counted:
            continue
        made = record(f"{name}.{figure}", subject.name, [of(run) for run in counted])
        result.records.append(made)
        medians[figure] = made.median
    say(f"{name}  {subject.name}: " + ", ".join(f"{key} {v:.4g}" for key, v in medians.items()))
    for what in ("echoes", "smalls"):
        result.samples[f"{name}, {subject.name}: {what}, ms beyond the RTT"] = [
            [value for _, value in getattr(run, what)] for run in runs
        ]
    coarse = [each_quarter_second([value for _, value in run.queue]) for run in runs]
    result.samples[f"{name}, {subject.name}: queue each 250 ms, ms"] = coarse
    step = max(1, len(coarse[0]) // 400)
    result.curves.setdefault(f"{name} queue, ms over s", {})[subject.name] = [
        (0.25 * place, value) for place, value in enumerate(coarse[0])
    ][::step]
    return medians
