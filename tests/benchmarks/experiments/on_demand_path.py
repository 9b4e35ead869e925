"""A satellite that is billed by its time up, beside a terrestrial path that is always up."""

from __future__ import annotations

import time
from functools import partial

from tests.benchmarks.bench import OURS, Bench, Series, Settings, say
from tests.benchmarks.experiments.downloads import seconds, transfer_record
from tests.benchmarks.experiments.several_paths import both_hops, terrestrial_of
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.client.transfer import Transfer
from tests.testbed.node import PathName

_LARGE_BYTES, _SMALL_BYTES = 100_000_000, 20_000
_ALWAYS_UP = "underpass-bonded"
# The least up time is no longer than the idle time before the release: so the figure shows the
# cost of the rule, without an addition by the configuration.
_TIMES = {"others_down_s": 0.2, "idle_s": 5.0, "least_up_s": 5.0, "least_down_s": 1.0}
_RELEASED_WITHIN_S = 30.0
# One small exchange each second, for half a minute.
_EXCHANGES, _PAUSE_S = 30, 1.0


def run(settings: Settings) -> Result:
    """Download 100 MB, exchange small objects, and let the terrestrial path die."""
    result = Result("on-demand-path")
    with both_hops(settings) as on:
        paths: tuple[PathName, ...] = ("satellite", "terrestrial")
        on.add(Underpass(OURS, None, paths=paths, on_demand={"satellite": _TIMES}))
        on.add(Underpass(_ALWAYS_UP, None, paths=paths))
        _downloads(on, result)
        _small_exchanges(on, result)
        _terrestrial_dies(on, result)
        on.describe(result)
    return result


def _ours(on: Bench) -> Underpass:
    return next(each for each in on.subjects if isinstance(each, Underpass) and each.name == OURS)


def _up_s(subject: Underpass) -> float:
    """Return how long the satellite has been up since the terminal's start."""
    [view] = [p for p in subject.pair.terminal.status()["paths"] if p["name"] == "satellite"]
    return float(view["on_demand"]["up_s"])


def _wait_until_released(subject: Underpass) -> None:
    """Wait until the satellite is down and may come up again."""
    deadline = time.monotonic() + _RELEASED_WITHIN_S
    while time.monotonic() < deadline:
        paths = subject.pair.terminal.status()["paths"]
        if not any(p["name"] == "satellite" and p["on_demand"]["up"] for p in paths):
            break
        time.sleep(0.2)
    time.sleep(_TIMES["least_down_s"] + 0.5)


def _downloads(on: Bench, result: Result) -> None:
    ours, up = _ours(on), []

    def one(subject: Subject, access: Access, seed: int, deadline_s: float) -> Transfer:
        begun = _up_s(ours)
        transfer = access.download(_LARGE_BYTES, seed, deadline_s)
        if subject is ours:
            _wait_until_released(ours)
            up.append(_up_s(ours) - begun)
        return transfer

    series = [Series(subject, partial(one, subject)) for subject in on.subjects]
    for subject, transfers in zip(on.subjects, on.in_turn(series, 3), strict=True):
        figure = "on-demand-path.download"
        result.records.append(transfer_record(figure, subject, transfers, lambda t: seconds(on, t)))
    result.records.append(record("on-demand-path.up", OURS, up))
    say(f"on-demand-path  up for {', '.join(f'{each:.1f}' for each in up)} s")


def _small_exchanges(on: Bench, result: Result) -> None:
    ours = _ours(on)
    _wait_until_released(ours)
    begun = _up_s(ours)

    def one(access: Access, seed: int, deadline_s: float) -> Transfer:
        transfers = []
        for number in range(_EXCHANGES):
            transfers.append(access.download(_SMALL_BYTES, seed + number, deadline_s))
            time.sleep(_PAUSE_S)
        return max(transfers, key=lambda transfer: seconds(on, transfer))

    [slowest] = on.in_turn([Series(ours, one)], 1)
    slow_ms = max(seconds(on, transfer) * 1e3 for transfer in slowest)
    result.records.append(record("on-demand-path.small", OURS, [_up_s(ours) - begun]))
    say(f"on-demand-path  {_EXCHANGES} small exchanges, {slow_ms:.0f} ms at the most")


def _terrestrial_dies(on: Bench, result: Result) -> None:
    """Measure the time from a request after the cut to its first byte."""
    hop, terminal, ours = terrestrial_of(on), on.testbed.terminal.name, _ours(on)

    def one(subject: Subject, access: Access, seed: int, deadline_s: float) -> Transfer:
        if subject is ours:
            _wait_until_released(ours)
        hop.block(terminal)
        try:
            return access.download(_SMALL_BYTES, seed, deadline_s)
        finally:
            hop.unblock(terminal)
            time.sleep(2.0)

    series = [Series(subject, partial(one, subject)) for subject in on.subjects]
    for subject, transfers in zip(on.subjects, on.in_turn(series, 5), strict=True):
        figure = "on-demand-path.first-byte"
        result.records.append(
            transfer_record(
                figure,
                subject,
                transfers,
                lambda t: seconds(on, t) if t.first_byte_s is None else t.first_byte_s,
            )
        )
