"""Links that change: a fade, a LEO service, a millimetre-wave link; each by its trace."""

from __future__ import annotations

from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Settings
from tests.benchmarks.experiments.loaded import Load, Loaded, add_records, loaded_series
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Subject
from tests.testbed.profile import Link, Profile
from tests.testbed.topology import Testbed
from tests.traces.oracle import oracle
from tests.traces.trace import Trace

_ORACLE = "oracle"


def run_fade(settings: Settings) -> Result:
    """A GEO carrier in rain."""
    return _traced(settings, "fade", Trace.load("geo-fade"), queue_ms=1000.0)[0]


def run_leo(settings: Settings) -> Result:
    """A LEO service; beside it an oracle that knows the trace with a delay."""
    trace = Trace.load("leo")
    result, _ = _traced(settings, "leo", trace, queue_ms=200.0)
    late = oracle(trace, "forward")
    for entry in list(result.records):
        if entry.subject != _ORACLE and entry.id == "leo.goodput":
            below = [100 * late.part - value for value in entry.values]
            result.records.append(record("leo.below-oracle", entry.subject, below))
        if entry.subject != _ORACLE and entry.id == "leo.queue":
            above = [value - late.queue_p95_ms for value in entry.values]
            result.records.append(record("leo.queue-above-oracle", entry.subject, above))
    return result


def run_mmwave(settings: Settings) -> Result:
    """A millimetre-wave link; how soon data flows after each blockage."""
    result, runs = _traced(settings, "mmwave", Trace.load("mmwave"), queue_ms=100.0)
    for subject, loaded in runs:
        behind = [resumptions(one) for one in loaded]
        result.samples[f"{subject.name}: first new byte, RTT"] = behind
        values = [quantile(one, 0.95) for one in behind]
        result.records.append(record("mmwave.resumption", subject.name, values))
    return result


def _traced(
    settings: Settings, name: str, trace: Trace, *, queue_ms: float
) -> tuple[Result, list[tuple[Subject, list[Loaded]]]]:
    """Run every subject under load over a whole trace, from its first round trip on."""
    result = Result(name)
    load = Load(trace.duration_s, trace.rtt_s(0.0))
    # Subjects are told the hop's best values.
    links = [
        Link(max(step.rate_bps for step in steps), steps[0].delay_ms, queue_ms=queue_ms)
        for steps in (trace.forward, trace.return_)
    ]
    profile = Profile(name, *links)
    with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start_untold()
        runs = list(zip(on.subjects, loaded_series(on, trace, load), strict=True))
        for subject, loaded in runs:
            add_records(result, name, subject, loaded)
        on.describe(result)
    result.notes["trace"] = trace.source
    late = oracle(trace, "forward")
    result.records.append(record(f"{name}.goodput", _ORACLE, [100 * late.part]))
    result.records.append(record(f"{name}.queue", _ORACLE, [late.queue_p95_ms]))
    result.told[_ORACLE] = "the trace, one RTT + 200 ms late; a computation"
    return result, runs


def resumptions(one: Loaded) -> list[float]:
    """Return the time from each blockage's end to the next bytes, in round trips."""
    rtt_s, found = one.trace.rtt_s(0.0), []
    for start, length in one.trace.blockages:
        end = start + length
        first = next((at for at, _ in one.bulk.curve if at > end), one.load.seconds)
        found.append((first - end) / rtt_s)
    return found
