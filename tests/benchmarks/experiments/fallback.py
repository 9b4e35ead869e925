"""Nodes with the rights of a plain container: no BPF, no CAP_NET_ADMIN."""

from __future__ import annotations

import statistics

from tests.benchmarks.bench import OURS, WIDE_WINDOWS, Bench, Settings
from tests.benchmarks.experiments.loaded import Load, add_records, constant, loaded_series
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

_SECONDS = 30.0
_BBR = "no-proxy-bbr"


def run(settings: Settings) -> Result:
    """Load profile V; compare the bulk goodput with no proxy on bbr."""
    result = Result("fallback")
    load = Load(_SECONDS, PROFILE_V.rtt_s)
    with Testbed(PROFILE_V, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start_untold(unprivileged=True)
        runs = dict(
            zip(
                [subject.name for subject in on.subjects],
                loaded_series(on, constant(PROFILE_V), load, runs=5),
                strict=True,
            )
        )
        for subject in on.subjects:
            add_records(result, "fallback", subject, runs[subject.name])
            if isinstance(subject, Underpass):
                status = subject.pair.terminal.status()
                result.notes["what the terminal's status says"] = {
                    key: status[key] for key in ("congestion_controls", "confinement")
                }
        if OURS in runs and _BBR in runs:
            of = statistics.median(one.goodput_percent for one in runs[_BBR])
            if of:
                ratios = [one.goodput_percent / of for one in runs[OURS]]
                result.records.append(record("fallback.to-bbr", OURS, ratios))
            else:
                result.notes["no ratio to bbr"] = "its median goodput is 0"
        on.describe(result)
    return result
