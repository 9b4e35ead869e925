"""Downloads through blockages: one object, a highway under bridges, a real drive's tunnels, and
how soon the first byte comes after the link is back."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.bench import HEADERS_LEAVE, OURS, Bench, Series, Settings, bench, say
from tests.benchmarks.experiments.downloads import (
    seconds,
    transfer_record,
    typical_curve,
)
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed import ports
from tests.testbed.client.transfer import Transfer, request
from tests.testbed.profile import PROFILE_V

_MB = 1_000_000
# More than any of these drives can carry.
_ENDLESS = 4_000 * _MB
# A download starts this long before the time that counts.
_LEAD_S = 5.0

_TUNNEL_AT_S, _TUNNEL_S = 2.0, 20.0

_HIGHWAY_CLEAR_S, _HIGHWAY_BLOCKED_S = 90 / 25, 29 / 25
_HIGHWAY_PERIODS = 25

# Clear time before each blockage, and its length, s; no blockage follows the last clear time.
_REAL_DRIVE = [(60.0, 35.0), (60.0, 4.0), (25.0, 35.0), (60.0, 13.0), (60.0, 0.0)]

_RESUMPTIONS = 50
_SHORTEST_S, _LONGEST_S = 1.0, 120.0
_BETWEEN_S = 4.0


@dataclass(frozen=True)
class Blockage:
    """A time without line of sight, s from the beginning of its run."""

    start_s: float
    duration_s: float


def run_object(settings: Settings) -> Result:
    """24 MB with a blockage of 20 s at 2 s, against the time of an ideal sender."""
    result = Result("blockage-24mb")
    size = 24 * _MB
    blockages = [Blockage(_TUNNEL_AT_S, _TUNNEL_S)]
    with bench(PROFILE_V, settings) as on:

        def one(
            planned: Underpass | None, access: Access, seed: int, deadline_s: float
        ) -> Transfer:
            with _arranged(on, blockages, planned):
                return access.download(size, seed, deadline_s)

        variants = _variants(on)
        series = [Series(subject, partial(one, planned)) for subject, planned, _ in variants]
        done = on.in_turn(series, 30)
        for (subject, _, label), transfers in zip(variants, done, strict=True):
            made = transfer_record(
                "blockage-24mb.v" + label,
                subject,
                transfers,
                lambda t: seconds(on, t) / _ideal_s(size, blockages),
            )
            result.records.append(made)
            curves = result.curves.setdefault("received, MB over s", {})
            curves[subject.name + label] = typical_curve(transfers)
        on.describe(result)
    result.notes["ideal, s"] = round(_ideal_s(size, blockages), 2)
    return result


def run_highway(settings: Settings) -> Result:
    """Blockages of 29 m after each 90 m of clear road, at 25 m/s."""
    period = _HIGHWAY_CLEAR_S + _HIGHWAY_BLOCKED_S
    blockages = [
        Blockage(number * period + _HIGHWAY_CLEAR_S, _HIGHWAY_BLOCKED_S)
        for number in range(_HIGHWAY_PERIODS)
    ]
    return _drive(settings, "highway", blockages, _HIGHWAY_PERIODS * period, runs=5)


def run_real_drive(settings: Settings) -> Result:
    """The blockages of a drive through four road tunnels."""
    blockages, at = [], 0.0
    for clear_s, blocked_s in _REAL_DRIVE:
        if blocked_s:
            blockages.append(Blockage(at + clear_s, blocked_s))
        at += clear_s + blocked_s
    return _drive(settings, "real-drive", blockages, at, runs=3)


def run_resumption(settings: Settings) -> Result:
    """Time from the link's return to the first new byte at the client, without a plan."""
    result = Result("resumption")
    with bench(PROFILE_V, settings) as on:
        values_of = resumptions(on, settings.runs or _RESUMPTIONS)
        for subject, values in zip(on.subjects, values_of, strict=True):
            result.records.append(record("resumption.v", subject.name, values))
            p95 = quantile(values, 0.95)
            result.records.append(record("resumption-p95.v", subject.name, [p95]))
            say(f"resumption  {subject.name}: p95 {p95:.2f} RTT over {len(values)} blockages")
        on.describe(result)
    return result


def resumptions(on: Bench, count: int, *, up: bool = False) -> list[list[float]]:
    """Return each subject's times in RTT, for `count` lengths of blockage on a logarithmic scale.

    The bytes are a download's at the client, or with `up` an upload's at the origin. A connection
    that broke meanwhile counts as the longest wait.
    """
    rtt_s = on.testbed.profile.rtt_s
    lengths = [
        _SHORTEST_S * (_LONGEST_S / _SHORTEST_S) ** (number / max(1, count - 1))
        for number in range(count)
    ]
    values: dict[str, list[float]] = {subject.name: [] for subject in on.subjects}

    def one(name: str, access: Access, seed: int, _deadline_s: float) -> Transfer:
        length = lengths[seed - on.settings.seed]
        blockage = Blockage(_LEAD_S, length)
        # A peer may need minutes to notice that the link is back.
        patience = 60.0 + _BETWEEN_S
        back = blockage.start_s + blockage.duration_s
        after_s = _BETWEEN_S if name.startswith(OURS) else patience
        with _arranged(on, [blockage], None):
            if up:
                transfer = _broken_off_upload(on, access, f"{name}-{seed}", seed, back + after_s)
            else:
                transfer = access.download(_ENDLESS, seed, back + after_s)
        first = next((at for at, _ in transfer.curve if at > back), math.inf)
        values[name].append((min(first, back + patience) - back) / rtt_s)
        return transfer

    on.in_turn([Series(each, partial(one, each.name)) for each in on.subjects], count)
    return list(values.values())


def _broken_off_upload(
    on: Bench, access: Access, name: str, seed: int, deadline_s: float
) -> Transfer:
    """Upload until the origin resets the connection; the curve counts the bytes that came there.

    If the client reset it, the data that it has handed in would be sent on for minutes.
    """
    origin, began = on.testbed.origin, time.monotonic()

    def ask(path: str) -> bytes:
        _, body = request(origin, "127.0.0.1", path, port=ports.HTTP)
        return body

    breaking = threading.Timer(deadline_s, ask, (f"/break/{name}",))
    breaking.start()
    query = f"&name={name}&arrivals=1"
    transfer = access.upload(_ENDLESS, seed, deadline_s + _BETWEEN_S, query=query)
    breaking.join()
    # An upload that never came to the origin has no receipt.
    receipts = json.loads(ask(f"/receipts/{name}"))
    transfer.curve = [
        (at - began, count) for receipt in receipts for at, count in receipt["arrivals"]
    ]
    return transfer


def _drive(
    settings: Settings, name: str, blockages: Sequence[Blockage], length_s: float, *, runs: int
) -> Result:
    """Measure the goodput of a drive, in percent of its clear time's capacity after headers."""
    result = Result(name)
    rate_bps = PROFILE_V.forward.rate_bps
    assert rate_bps is not None
    clear_s = length_s - sum(blockage.duration_s for blockage in blockages)
    later = [Blockage(_LEAD_S + b.start_s, b.duration_s) for b in blockages]
    with bench(PROFILE_V, settings) as on:

        def one(planned: Underpass | None, access: Access, seed: int, _: float) -> Transfer:
            with _arranged(on, later, planned):
                return access.download(_ENDLESS, seed, _LEAD_S + length_s)

        variants = _variants(on)
        series = [Series(subject, partial(one, planned)) for subject, planned, _ in variants]
        done = on.in_turn(series, runs)
        for (subject, _, label), transfers in zip(variants, done, strict=True):
            for transfer in transfers:
                if transfer.error and not transfer.error.startswith("TimeoutError"):
                    at_s = transfer.curve[-1][0] if transfer.curve else 0.0
                    say(f"{subject.name}: {transfer.error} at {at_s:.0f} s")
            goodputs = [
                100 * (t.bytes - t.bytes_at(_LEAD_S)) * 8 / (clear_s * rate_bps * HEADERS_LEAVE)
                for t in transfers
            ]
            made = record(f"{name}.v{label}", subject.name, goodputs)
            say(f"{made.id}  {made.subject}: median {made.median:.4g} %, p90 {made.p90:.4g}")
            result.records.append(made)
            curves = result.curves.setdefault("received, MB over s", {})
            curves[subject.name + label] = typical_curve(transfers)
        on.describe(result)
    return result


def _variants(on: Bench) -> list[tuple[Subject, Underpass | None, str]]:
    """Return every subject, and ours a second time with the blockages announced."""
    variants: list[tuple[Subject, Underpass | None, str]] = []
    for subject in on.subjects:
        variants.append((subject, None, ""))
        if isinstance(subject, Underpass):
            variants.append((subject, subject, "-plan"))
    return variants


@contextmanager
def _arranged(
    on: Bench, blockages: Sequence[Blockage], planned: Underpass | None
) -> Iterator[None]:
    """Have satlink block at these times from now, and tell the nodes that plan."""
    start, terminal = time.monotonic(), on.testbed.terminal.name
    on.testbed.satlink.schedule(terminal, [(start + b.start_s, b.duration_s) for b in blockages])
    if planned:
        since_epoch = time.time() - time.monotonic() + start
        planned.pair.plan_blockages([(since_epoch + b.start_s, b.duration_s) for b in blockages])
    yield
    on.testbed.satlink.schedule(terminal, [])
    if planned:
        planned.pair.plan_blockages([])


def _ideal_s(size: int, blockages: Sequence[Blockage]) -> float:
    """Return when the last byte comes if the link is full whenever it is not blocked."""
    rate_bps = PROFILE_V.forward.rate_bps
    assert rate_bps is not None
    at = PROFILE_V.rtt_s
    left_s = size * 8 / (rate_bps * HEADERS_LEAVE)
    for blockage in blockages:
        before = max(0.0, min(left_s, blockage.start_s - at))
        at, left_s = at + before, left_s - before
        if left_s:
            at = max(at, blockage.start_s + blockage.duration_s)
    return at + left_s
