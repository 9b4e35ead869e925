"""Goodput against the satellite's round-trip time, as PEPsal's authors measured it."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.flows import run_flows, steady_bps
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.profile import Link, Profile, symmetric
from tests.testbed.topology import Testbed

_RTTS_MS = (25, 100, 200, 400, 600)
_RATE_BPS = 10_000_000
_WAN_RTT_MS = 25.0
_RIVALS = 5
_SECONDS = 25.0
# Name, terrestrial rivals, loss on the satellite hop.
_PARTS = [("competition", _RIVALS, 0.0), ("loss", 0, 0.01), ("both", _RIVALS, 0.01)]
_SUBJECTS = ["underpass", "single-box", "no-proxy-cubic", "no-proxy-hybla"]

# The terrestrial bottleneck behind the hub; its queue is one bandwidth-delay product of 100 ms.
WAN = symmetric("wan", Link(rate_bps=_RATE_BPS, delay_ms=_WAN_RTT_MS / 2, queue_ms=100.0))


def satellite(rtt_ms: float) -> Profile:
    """Return a hop that adds up to `rtt_ms` with the terrestrial part."""
    delay_ms = max(0.0, (rtt_ms - _WAN_RTT_MS) / 2)
    link = Link(rate_bps=_RATE_BPS, delay_ms=delay_ms, queue_ms=1000.0)
    return symmetric(f"{rtt_ms} ms", link)


@dataclass(frozen=True)
class _Goodput:
    """One flow's goodput, Mbit/s."""

    mbps: float
    last_byte_s: float | None = None


@dataclass(frozen=True)
class _Cells:
    """The results at one round-trip time: the runs by part and subject, and notes."""

    values: dict[tuple[str, str], list[float]]
    notes: dict[str, object]
    told: dict[str, str]


def run(settings: Settings) -> Result:
    """Measure each subject's goodput by round-trip time, under competition, loss and both.

    The round-trip times are measured in parallel, each on a test bed of its own: together they
    carry a third of profile G's rate.
    """
    result = Result("goodput-rtt")
    result.notes["each run"] = f"{_SECONDS:g} s, the first fifth of which is not counted"
    with ThreadPoolExecutor(len(_RTTS_MS)) as pool:
        cells = list(pool.map(lambda rtt_ms: _cells(settings, rtt_ms), _RTTS_MS))
    for rtt_ms, of_rtt in zip(_RTTS_MS, cells, strict=True):
        for (part, subject), values in of_rtt.values.items():
            made = record(f"goodput-rtt.{part}.{rtt_ms}", subject, values)
            result.records.append(made)
            lines = result.curves.setdefault(f"{part}: Mbit/s over ms", {})
            lines.setdefault(subject, []).append((rtt_ms, made.median))
        result.notes |= {f"{rtt_ms} ms: {key}": note for key, note in of_rtt.notes.items()}
        result.told |= of_rtt.told
    return result


def _cells(settings: Settings, rtt_ms: int) -> _Cells:
    values: dict[tuple[str, str], list[float]] = {}
    with Testbed(satellite(rtt_ms), wan=WAN, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start([name for name in _SUBJECTS if name in settings.subjects])
        ground = Access(testbed.ground, DIRECT, addresses.ORIGIN, ports.HTTP)
        for part, rivals, loss in _PARTS:
            testbed.satlink.set_loss(loss)

            def one(access: Access, seed: int, _: float, rivals: int = rivals) -> _Goodput:
                flows = run_flows([access, *[ground] * rivals], _SECONDS, seed)
                return _Goodput(steady_bps(flows[0], _SECONDS) / 1e6)

            done = on.in_turn([Series(subject, one) for subject in on.subjects], 3)
            for subject, runs in zip(on.subjects, done, strict=True):
                found = [run.mbps for run in runs]
                values[part, subject.name] = found
                say(
                    f"goodput-rtt.{part}.{rtt_ms}  {subject.name}: "
                    f"{statistics.median(found):.2f} Mbit/s"
                )
        return _Cells(values, on.notes(), on.told())
