"""Start-up: the bytes received five seconds after the request."""

from __future__ import annotations

import statistics

from tests.benchmarks.bench import Series, Settings, bench
from tests.benchmarks.experiments.downloads import typical_curve
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import PROFILE_G

_SECONDS = 5.0
_SIZE = 1_000_000_000
_BASE = "no-proxy-cubic"


def run(settings: Settings) -> Result:
    """Measure the bytes after 5 s, and compare Underpass with no proxy on cubic."""
    result = Result("start-up")
    medians: dict[str, float] = {}
    values: dict[str, list[float]] = {}

    def one(access: Access, seed: int, _deadline_s: float) -> Transfer:
        return access.download(_SIZE, seed, _SECONDS)

    with bench(PROFILE_G, settings) as on:
        done = on.in_turn([Series(subject, one) for subject in on.subjects], 30)
        for subject, transfers in zip(on.subjects, done, strict=True):
            values[subject.name] = [transfer.bytes / 1e6 for transfer in transfers]
            medians[subject.name] = statistics.median(values[subject.name])
            result.records.append(record("start-up.g", subject.name, values[subject.name]))
            result.curves.setdefault("received, MB over s", {})[subject.name] = typical_curve(
                transfers
            )
        on.describe(result)
    if medians.get(_BASE):
        for name, of_subject in values.items():
            ratios = [value / medians[_BASE] for value in of_subject]
            result.records.append(record("start-up-ratio.g", name, ratios))
    return result
