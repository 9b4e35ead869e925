"""Objects as coded datagrams: how long they take where packets are lost, and what repair costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.benchmarks.bench import OURS, WIDE_WINDOWS, Bench, Settings, say
from tests.benchmarks.experiments.bursts import MODEL
from tests.benchmarks.experiments.downloads import download_series, seconds, transfer_record
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.profile import PROFILE_G, Profile, symmetric
from tests.testbed.topology import Testbed

_MB = 1_000_000
_QUIC = "underpass-quic"
# The losses of the path are learned from what was sent before.
_LEARNING_BYTES = 40 * _MB
_BURSTS = symmetric("G, bursts", dataclasses.replace(PROFILE_G.forward, other={"loss": MODEL}))


def run(settings: Settings) -> Result:
    """1, 8 and 200 MB on profile G, and with 1 % lost in bursts, beside TCPCL."""
    result = Result("coded")
    _objects(settings, result, "coded", PROFILE_G)
    _objects(settings, result, "coded-bursts", _BURSTS)
    return result


def _objects(settings: Settings, result: Result, name: str, profile: Profile) -> None:
    with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        coded = Underpass(_QUIC, None, convergence_layer="quic")
        for subject in (Underpass(OURS, None), coded):
            on.add(subject)
        for subject in on.subjects:
            subject.access().download(_LEARNING_BYTES, settings.seed, settings.cap_s)
            on.drain()
        for size, runs in ((_MB, 100), (8 * _MB, 30), (200 * _MB, 3)):
            before = _symbols(coded)
            figure = f"{name}.{size // _MB}mb"
            for subject, transfers in download_series(on, size, runs):
                took = [seconds(on, transfer) for transfer in transfers]
                if size == 200 * _MB:
                    rate = transfer_record(
                        figure, subject, transfers, lambda t: t.bytes * 8 / seconds(on, t) / 1e6
                    )
                    result.records.append(rate)
                    continue
                made = transfer_record(figure, subject, transfers, lambda t: seconds(on, t))
                result.records.append(made)
                if size == _MB:
                    p99 = quantile(took, 0.99)
                    say(f"{figure}-p99  {subject.name}: {p99:.3f} s")
                    result.records.append(record(f"{figure}-p99", subject.name, [p99]))
            part = _repair_percent(before, _symbols(coded))
            say(f"{figure}-repair  {_QUIC}: {part:.2f} %")
            result.records.append(record(f"{figure}-repair", _QUIC, [part]))
        result.notes |= {f"{name}, {key}": value for key, value in on.notes().items()}
        result.told |= on.told()


def _symbols(coded: Underpass) -> Sequence[int]:
    """Return what the hub's sessions have sent: symbols of bundles, and those for what was lost."""
    keys = ("symbols_sent", "repair_symbols_sent", "asked_symbols_sent")
    paths = coded.pair.hub.status()["paths"]
    sessions = [session for path in paths for session in path["sessions"]]
    return [sum(session[key] for session in sessions) for key in keys]


def _repair_percent(before: Sequence[int], after: Sequence[int]) -> float:
    own, *repair = (now - then for then, now in zip(before, after, strict=True))
    return 100 * sum(repair) / max(1, own + sum(repair))
