"""Downloads and uploads at once on an uneven link."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.bench import HEADERS_LEAVE, OURS, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.flows import run_flows, run_uploads, steady_bps
from tests.benchmarks.experiments.loaded import each_quarter_second
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.underpass import SecondStart, Underpass
from tests.testbed.node import Told
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

_SECONDS = 60.0
_FLOWS = 3
_SAMPLE_S = 0.5
# An ACK with timestamps acknowledges two full segments.
_ACK_BYTES, _ACKED_BYTES = 52, 2 * 1448


@dataclass(frozen=True)
class _Both:
    """Goodputs, bit/s; both queues together, and the sessions' RTTs above their least, ms."""

    down_bps: float
    up_bps: float
    queue_ms: list[float]
    rtt_beyond_ms: list[float]
    last_byte_s: float | None = None

    def percent(self, way: str) -> float:
        """Return a direction's goodput in % of its link, less headers and the other's ACKs."""
        link, own, other = (
            (PROFILE_V.forward, self.down_bps, self.up_bps)
            if way == "down"
            else (PROFILE_V.return_, self.up_bps, self.down_bps)
        )
        assert link.rate_bps is not None
        acks_bps = other / _ACKED_BYTES * _ACK_BYTES
        return 100 * own / ((link.rate_bps - acks_bps) * HEADERS_LEAVE)


def run(settings: Settings) -> Result:
    """Saturate both directions for a minute: all subjects, and ours again, told nothing."""
    result = Result("both-ways")
    labels: tuple[tuple[str, Told], ...] = (("told", "rates"), ("untold", "nothing"))
    for label, told in labels:
        with Testbed(PROFILE_V, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
            on = Bench(testbed, settings)
            if told == "rates":
                on.start(settings.subjects)
            elif OURS in settings.subjects:
                on.add(Underpass(OURS, None, told=told))
                on.add(SecondStart(told))
            series = [Series(subject, partial(_one, on, subject)) for subject in on.subjects]
            for subject, runs in zip(on.subjects, on.in_turn(series, 3), strict=True):
                _report(result, label, subject, runs)
                before = result.told.get(subject.name)
                now = subject.told
                result.told[subject.name] = f"{before}; untold: {now}" if before else now
            result.notes |= {f"{label}: {key}": note for key, note in on.notes().items()}
    result.notes["measured"] = (
        "behind the first fifth of each minute; ACKs are taken as 52 bytes for two full segments "
        "of the other way's goodput"
    )
    return result


def _one(on: Bench, subject: Subject, access: Access, seed: int, _deadline_s: float) -> _Both:
    satlink, name = on.testbed.satlink, on.testbed.terminal.name
    ways, ended = [access] * _FLOWS, threading.Event()
    satlink.reset_statistics()
    with ThreadPoolExecutor(3) as pool:
        rtts = pool.submit(_session_rtts, subject, ended)
        down = pool.submit(run_flows, ways, _SECONDS, seed)
        up = pool.submit(run_uploads, ways, on.testbed.origin, _SECONDS, seed)
        try:
            downs, ups = down.result(), up.result()
            both = zip(
                satlink.queue_ms(name, "forward"), satlink.queue_ms(name, "return"), strict=False
            )
            queue = [there + back for (_, there), (_, back) in both]
        finally:
            ended.set()
        beyond = rtts.result()
    return _Both(
        sum(steady_bps(flow, _SECONDS) for flow in downs),
        sum(steady_bps(flow, _SECONDS) for flow in ups),
        queue[len(queue) // 5 :],
        beyond,
    )


def _session_rtts(subject: Subject, ended: threading.Event) -> list[float]:
    """Return the p95 of each session's round trip above its least, ms; only for Underpass."""
    if not isinstance(subject, Underpass):
        return []
    samples: dict[tuple[str, str], list[float]] = {}
    while not ended.wait(_SAMPLE_S):
        for node in (subject.pair.terminal, subject.pair.hub):
            for path in node.status()["paths"]:
                for session in path["sessions"]:
                    if session["rtt_ms"] and session["in_flight_bytes"]:
                        key = (node.name, str(session["id"]))
                        samples.setdefault(key, []).append(
                            session["rtt_ms"] - session["min_rtt_ms"]
                        )
    return [quantile(of, 0.95) for of in samples.values() if len(of) > 10]


def _report(result: Result, label: str, subject: Subject, runs: list[_Both]) -> None:
    values = {
        "down": [one.percent("down") for one in runs],
        "up": [one.percent("up") for one in runs],
        # Without traffic there is no queue.
        "queue": [quantile(one.queue_ms, 0.95) for one in runs if one.down_bps or one.up_bps],
        "rtt": [max(one.rtt_beyond_ms) for one in runs if one.rtt_beyond_ms],
    }
    for figure, of_runs in values.items():
        if of_runs:
            made = record(f"both-ways.{label}.{figure}", subject.name, of_runs)
            result.records.append(made)
            say(f"{made.id}  {subject.name}: {made.median:.4g} {made.unit}")
    result.samples[f"{label}, {subject.name}: goodput down and up, bit/s"] = [
        [one.down_bps, one.up_bps] for one in runs
    ]
    result.samples[f"{label}, {subject.name}: both queues each 250 ms, ms"] = [
        each_quarter_second(one.queue_ms) for one in runs
    ]
    result.samples[f"{label}, {subject.name}: p95 of each session's RTT above its least, ms"] = [
        one.rtt_beyond_ms for one in runs
    ]
