"""Jitter that reorders, and acknowledgements that come in bunches."""

from __future__ import annotations

import statistics

from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Settings, say
from tests.benchmarks.experiments.downloads import download_series, seconds
from tests.benchmarks.records import Result, part_of, record
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

_SIZE = 150_000_000
_JITTER_MS, _BUNCH_MS = 15.0, 100.0
_DELAY_MS = PROFILE_V.forward.delay_ms
_STEADY: dict[str, object] = {"delay_ms": _DELAY_MS, "jitter_ms": 0.0, "reorder": False}
_SHAKEN: dict[str, object] = {
    "delay_ms": _DELAY_MS - _JITTER_MS,
    "jitter_ms": 2 * _JITTER_MS,
    "reorder": True,
}
# Name, both links, return link alone; the others are compared with the first.
_CASES = (
    ("none", _STEADY, 0.0),
    ("reordered", _SHAKEN, 0.0),
    ("bunched", _STEADY, _BUNCH_MS),
    ("both", _SHAKEN, _BUNCH_MS),
)


def run(settings: Settings) -> Result:
    """150 MB, profile V, with each and with both; against the same without them."""
    result = Result("jitter")
    without_bps: dict[str, float] = {}
    with Testbed(PROFILE_V, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start_untold()
        for case, links, bunch_ms in _CASES:
            for direction in ("forward", "return"):
                testbed.satlink.set_link(direction=direction, **links)
            testbed.satlink.set_link(direction="return", bunch_ms=bunch_ms)
            for subject, transfers in download_series(on, _SIZE, 5):
                goodputs = [8 * one.bytes / seconds(on, one) for one in transfers]
                result.samples[f"{case}, {subject.name}: bit/s"] = [goodputs]
                if case == "none":
                    without_bps[subject.name] = statistics.median(goodputs)
                    continue
                parts = [100 * part_of(one, without_bps[subject.name]) for one in goodputs]
                cut = [one.bytes for one in transfers if not one.complete]
                made = record(f"jitter.{case}", subject.name, parts, censored_bytes=cut)
                say(f"{made.id}  {subject.name}: {made.median:.4g} %")
                result.records.append(made)
        result.notes["goodput without jitter or bunches, Mbit/s"] = {
            name: round(bps / 1e6, 2) for name, bps in without_bps.items()
        }
        on.describe(result)
    return result
