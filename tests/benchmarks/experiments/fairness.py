"""Three terrestrial and three satellite flows through one bottleneck."""

from __future__ import annotations

from dama.formulas import jain_index
from tests.benchmarks.bench import Bench, Settings, say
from tests.benchmarks.experiments.flows import run_flows, steady_bps
from tests.benchmarks.experiments.goodput_rtt import WAN, satellite
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.topology import Testbed

_RTT_MS = 600
_FLOWS = 3
_SECONDS = 120.0
_SUBJECTS = ["underpass", "single-box", "no-proxy-cubic", "no-proxy-hybla"]


def run(settings: Settings) -> Result:
    """Measure Jain's index over the six, each flow's share, and the satellite flows' part."""
    result = Result("fairness")
    with Testbed(satellite(_RTT_MS), wan=WAN, seed=settings.seed) as testbed:
        bench = Bench(testbed, settings)
        bench.start([name for name in _SUBJECTS if name in settings.subjects])
        ground = Access(testbed.ground, DIRECT, addresses.ORIGIN, ports.HTTP)
        for subject in bench.subjects:
            indices, parts = [], []
            subject.before_series()
            bench.rest(subject)
            for number in range(bench.runs(3)):
                testbed.satlink.seed(settings.seed + number)
                ways = [subject.access()] * _FLOWS + [ground] * _FLOWS
                rates = [steady_bps(flow, _SECONDS) for flow in run_flows(ways, _SECONDS, 1)]
                indices.append(float(jain_index(rates)))
                parts.append(100 * sum(rates[:_FLOWS]) / sum(rates))
                result.notes[f"{subject.name}, run {number}: Mbit/s, satellite flows first"] = [
                    round(rate / 1e6, 3) for rate in rates
                ]
                result.curves["share of each flow, Mbit/s; 1 to 3 by satellite"] = {
                    **result.curves.get("share of each flow, Mbit/s; 1 to 3 by satellite", {}),
                    subject.name: [(place, rate / 1e6) for place, rate in enumerate(rates, 1)],
                }
                bench.drain()
            subject.after_series()
            result.records.append(record("fairness.jain", subject.name, indices))
            result.records.append(record("fairness.satellite-share", subject.name, parts))
            say(f"fairness  {subject.name}: Jain {indices[0]:.3f}, satellite {parts[0]:.0f} %")
        result.notes |= bench.notes()
    return result
