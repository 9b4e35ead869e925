"""Goodput against the satellite's round-trip time, as PEPsal's authors measured it."""

from __future__ import annotations

import statistics

from tests.benchmarks.bench import Bench, Settings, say
from tests.benchmarks.experiments.flows import run_flows, steady_bps
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access, Subject
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
    """Return a hop that makes, with the terrestrial part, a whole way of `rtt_ms`."""
    delay_ms = max(0.0, (rtt_ms - _WAN_RTT_MS) / 2)
    link = Link(rate_bps=_RATE_BPS, delay_ms=delay_ms, queue_ms=1000.0)
    return symmetric(f"{rtt_ms} ms", link)


def run(settings: Settings) -> Result:
    """Measure each subject's goodput by round-trip time, under competition, loss and both."""
    result = Result("goodput-rtt")
    result.notes["each run"] = f"{_SECONDS:g} s, the first fifth of which is not counted"
    for rtt_ms in _RTTS_MS:
        with Testbed(satellite(rtt_ms), wan=WAN, seed=settings.seed) as testbed:
            bench = Bench(testbed, settings)
            bench.start([name for name in _SUBJECTS if name in settings.subjects])
            for part, rivals, loss in _PARTS:
                testbed.satlink.set_loss(loss)
                lines = result.curves.setdefault(f"{part}: Mbit/s over ms", {})
                for subject in bench.subjects:
                    values = _series(bench, subject, rivals)
                    made = record(f"goodput-rtt.{part}.{rtt_ms}", subject.name, values)
                    result.records.append(made)
                    lines.setdefault(subject.name, []).append((rtt_ms, made.median))
                    say(f"{made.id}  {subject.name}: {statistics.median(values):.2f} Mbit/s")
            result.notes |= {f"{rtt_ms} ms: {key}": note for key, note in bench.notes().items()}
    return result


def _series(bench: Bench, subject: Subject, rivals: int) -> list[float]:
    ground = Access(bench.testbed.ground, DIRECT, addresses.ORIGIN, ports.HTTP)
    values = []
    subject.before_series()
    bench.rest(subject)
    for number in range(bench.runs(3)):
        bench.testbed.satlink.seed(bench.settings.seed + number)
        flows = run_flows([subject.access(), *[ground] * rivals], _SECONDS, 1 + number)
        values.append(steady_bps(flows[0], _SECONDS) / 1e6)
        bench.drain()
    subject.after_series()
    bench.rested_from_now(subject)
    return values
