"""A hop of which foreign traffic takes a part for a time."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from socket import AF_INET, SOCK_DGRAM

from tests.benchmarks.bench import HEADERS_LEAVE, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.loaded import each_quarter_second
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access
from tests.testbed import addresses
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

_PART = 0.3
_BEFORE_S, _TAKEN_S, _BEHIND_S = 10.0, 20.0, 2.0
_ENDLESS = 1_000_000_000_000
_SINK_PORT, _PAYLOAD_BYTES, _HEADER_BYTES, _TICK_S = 40_000, 1400, 28, 0.005


@dataclasses.dataclass(frozen=True)
class _Shared:
    """Beside foreign traffic: our goodput, bit/s; the queue, ms; what arrived of theirs, %."""

    goodput_bps: float
    queue_ms: list[float]
    others_percent: float
    last_byte_s: float | None = None


def run(settings: Settings) -> Result:
    """Download on profile V while UDP takes 30 % of it, behind a drop-tail modem and a fair one."""
    result = Result("shared-hop")
    rate_bps = PROFILE_V.forward.rate_bps
    assert rate_bps is not None
    left_bps = rate_bps * (1 - _PART) * HEADERS_LEAVE
    for modem in ("drop-tail", "fair-queue"):
        queue = {"limit_ms": PROFILE_V.forward.queue_ms, "discipline": modem}
        forward = dataclasses.replace(PROFILE_V.forward, other={"queue": queue})
        profile = dataclasses.replace(PROFILE_V, forward=forward)
        with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
            on = Bench(testbed, settings)
            on.start_untold()
            series = [
                Series(subject, partial(_one, on, rate_bps * _PART)) for subject in on.subjects
            ]
            for subject, runs in zip(on.subjects, on.in_turn(series, 5), strict=True):
                percent = [100 * one.goodput_bps / left_bps for one in runs]
                # A subject that moves nothing leaves the queue to the others.
                p95 = [quantile(one.queue_ms, 0.95) for one in runs if one.goodput_bps > 0]
                name = f"shared-hop.{modem}"
                result.records.append(record(f"{name}.goodput", subject.name, percent))
                if p95:
                    result.records.append(record(f"{name}.queue", subject.name, p95))
                others = [one.others_percent for one in runs]
                result.records.append(record(f"{name}.others", subject.name, others))
                result.samples[f"{name}, {subject.name}: queue each 250 ms, ms"] = [
                    each_quarter_second(one.queue_ms) for one in runs
                ]
                queues = ", ".join(f"{one:.0f}" for one in p95)
                say(
                    f"{name}  {subject.name}: {percent[0]:.1f} %, queue {queues or '-'} ms, "
                    f"others {others[0]:.1f} %"
                )
            result.notes |= {f"{modem}: {key}": note for key, note in on.notes().items()}
            result.told |= on.told()
    return result


def _one(on: Bench, taken_bps: float, access: Access, seed: int, _deadline_s: float) -> _Shared:
    satlink, name = on.testbed.satlink, on.testbed.terminal.name
    seconds = _BEFORE_S + _TAKEN_S + _BEHIND_S
    with ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        bulk = pool.submit(access.download, _ENDLESS, seed, seconds)
        time.sleep(_BEFORE_S)
        satlink.reset_statistics()
        ended = threading.Event()
        others = pool.submit(_take, on.testbed, taken_bps, ended)
        time.sleep(_TAKEN_S)
        queue = [waited for _, waited in satlink.queue_ms(name, "forward")]
        ended.set()
        others_percent = others.result()
        transfer = bulk.result()
    # Bytes on the hop in these seconds reach the client one way later.
    first_s = _BEFORE_S + on.testbed.profile.forward.delay_ms / 1000
    received = transfer.bytes_at(first_s + _TAKEN_S) - transfer.bytes_at(first_s)
    say(f"the download ran for {time.monotonic() - began:.0f} s: {transfer.error}")
    return _Shared(8 * received / _TAKEN_S, queue, others_percent)


def _take(testbed: Testbed, rate_bps: float, ended: threading.Event) -> float:
    """Send UDP from the hub to the terminal at a constant IP rate, until `ended` is set.

    Return the part of it that had arrived by then, in percent.
    """
    packet = bytes(_PAYLOAD_BYTES)
    per_s = rate_bps / 8 / (_PAYLOAD_BYTES + _HEADER_BYTES)
    sink = testbed.terminal.node.socket(AF_INET, SOCK_DGRAM)
    source = testbed.hub.socket(AF_INET, SOCK_DGRAM)
    with sink, source:
        to = (addresses.terminal_sat(0), _SINK_PORT)
        sink.bind(to)
        sink.setblocking(False)
        began, sent, arrived = time.monotonic(), 0, 0
        while not ended.wait(_TICK_S):
            due = int((time.monotonic() - began) * per_s)
            for _ in range(due - sent):
                source.sendto(packet, to)
            sent = due
            with contextlib.suppress(BlockingIOError):
                while sink.recv(_PAYLOAD_BYTES):
                    arrived += 1
    # Packets still in flight are not lost.
    on_way = per_s * testbed.profile.forward.delay_ms / 1000
    return 100 * arrived / max(1.0, sent - on_way)
