"""Three terrestrial and three satellite flows through one bottleneck."""

from __future__ import annotations

from dataclasses import dataclass

from dama.formulas import jain_index
from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.flows import run_flows, steady_bps
from tests.benchmarks.experiments.goodput_rtt import WAN, satellite
from tests.benchmarks.records import Result, part_of, record
from tests.benchmarks.subjects import Access
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.topology import Testbed

_RTT_MS = 600
_FLOWS = 3
_SECONDS = 120.0
_SUBJECTS = ["underpass", "single-box", "no-proxy-cubic", "no-proxy-hybla"]


@dataclass(frozen=True)
class _Six:
    """The rates of one run's six flows, bit/s, satellite flows first."""

    rates_bps: list[float]
    last_byte_s: float | None = None


def run(settings: Settings) -> Result:
    """Measure Jain's index over the six, each flow's share, and the satellite flows' part."""
    result = Result("fairness")
    with Testbed(satellite(_RTT_MS), wan=WAN, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start([name for name in _SUBJECTS if name in settings.subjects])
        ground = Access(testbed.ground, DIRECT, addresses.ORIGIN, ports.HTTP)

        def one(access: Access, _seed: int, _deadline_s: float) -> _Six:
            ways = [access] * _FLOWS + [ground] * _FLOWS
            return _Six([steady_bps(flow, _SECONDS) for flow in run_flows(ways, _SECONDS, 1)])

        done = on.in_turn([Series(subject, one) for subject in on.subjects], 3)
        for subject, runs in zip(on.subjects, done, strict=True):
            title = "share of each flow, Mbit/s; 1 to 3 by satellite"
            result.curves.setdefault(title, {})[subject.name] = [
                (place, rate / 1e6) for place, rate in enumerate(runs[-1].rates_bps, 1)
            ]
            for number, six in enumerate(runs):
                result.notes[f"{subject.name}, run {number}: Mbit/s, satellite flows first"] = [
                    round(rate / 1e6, 3) for rate in six.rates_bps
                ]
            jain = [float(jain_index(six.rates_bps)) for six in runs]
            parts = [100 * part_of(sum(six.rates_bps[:_FLOWS]), sum(six.rates_bps)) for six in runs]
            result.records.append(record("fairness.jain", subject.name, jain))
            result.records.append(record("fairness.satellite-share", subject.name, parts))
            say(f"fairness  {subject.name}: Jain {jain[0]:.3f}, satellite {parts[0]:.0f} %")
        on.describe(result)
    return result
