"""Objects as coded datagrams: their times with packet loss, and the cost of repair."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.benchmarks.bench import OURS, WIDE_WINDOWS, Bench, Settings, say
from tests.benchmarks.experiments.bursts import MODEL
from tests.benchmarks.experiments.downloads import download_series, seconds, transfer_record
from tests.benchmarks.figures.paths import QUIC
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.profile import PROFILE_G, symmetric
from tests.testbed.topology import Testbed

_MB = 1_000_000
# Earlier traffic teaches the nodes the path's losses.
_LEARNING_BYTES = 40 * _MB
_BURSTS = symmetric("G, bursts", dataclasses.replace(PROFILE_G.forward, other={"loss": MODEL}))


def run_1mb(settings: Settings) -> Result:
    """1 MB on profile G, and with 1 % lost in bursts, beside TCPCL."""
    return _objects(settings, "coded-1mb", _MB, 100)


def run_8mb(settings: Settings) -> Result:
    """The same with 8 MB."""
    return _objects(settings, "coded-8mb", 8 * _MB, 30)


def run_200mb(settings: Settings) -> Result:
    """The same with 200 MB."""
    return _objects(settings, "coded-200mb", 200 * _MB, 3)


def _objects(settings: Settings, name: str, size: int, runs: int) -> Result:
    result = Result(name)
    # No subject here is a peer with fewer runs.
    settings = dataclasses.replace(settings, peer_runs=None)
    for where, profile in (("single", PROFILE_G), ("bursts", _BURSTS)):
        with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
            on = Bench(testbed, settings)
            _one_profile(on, result, f"{name}.{where}", size, runs)
            result.notes |= {f"{where}, {key}": value for key, value in on.notes().items()}
            result.told |= on.told()
    return result


def _one_profile(on: Bench, result: Result, figure: str, size: int, runs: int) -> None:
    coded = Underpass(QUIC, None, convergence_layer="quic")
    on.add(Underpass(OURS, None))
    on.add(coded)
    for subject in on.subjects:
        subject.access().download(_LEARNING_BYTES, on.settings.seed, on.settings.cap_s)
        on.drain()
    before = _symbols(coded)
    for subject, transfers in download_series(on, size, runs):
        made = transfer_record(figure, subject, transfers, lambda t: seconds(on, t))
        result.records.append(made)
        took = [seconds(on, transfer) for transfer in transfers]
        if size < 100 * _MB:
            p99 = quantile(took, 0.99)
            say(f"{figure}.p99  {subject.name}: {p99:.3f} s")
            result.records.append(record(f"{figure}.p99", subject.name, [p99]))
        else:
            rates = [t.bytes * 8 / seconds(on, t) / 1e6 for t in transfers]
            result.records.append(record(f"{figure}.rate", subject.name, rates))
    part = _repair_percent(before, _symbols(coded))
    say(f"{figure}.repair  {QUIC}: {part:.2f} %")
    result.records.append(record(f"{figure}.repair", QUIC, [part]))


def _symbols(coded: Underpass) -> Sequence[int]:
    """Return the symbols that the hub's sessions have sent: those of bundles, and repair."""
    keys = ("symbols_sent", "repair_symbols_sent", "asked_symbols_sent")
    paths = coded.pair.hub.status()["paths"]
    sessions = [session for path in paths for session in path["sessions"]]
    return [sum(session[key] for session in sessions) for key in keys]


def _repair_percent(before: Sequence[int], after: Sequence[int]) -> float:
    own, *repair = (now - then for then, now in zip(before, after, strict=True))
    return 100 * sum(repair) / max(1, own + sum(repair))
