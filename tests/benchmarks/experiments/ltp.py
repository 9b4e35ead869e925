"""LTP: one core's rate between two engines without sockets, and a live 1 GB on profile G."""

from __future__ import annotations

import dataclasses

from tests.benchmarks.bench import Settings, bench, say
from tests.benchmarks.experiments.downloads import (
    download_series,
    goodput_percent,
    transfer_record,
    typical_curve,
)
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed import bare_paths
from tests.testbed.profile import PROFILE_G
from tests.testbed.programs import example_output

_RUNS = 5
_SIZE = 1_000_000_000
_LIVE_RUNS = 3


def run(settings: Settings) -> Result:
    """Measure two engines at a simulated 600 ms and 1 % loss, with the same 2 GB each run."""
    result = Result("ltp")
    result.told["underpass"] = "RTT; blocks of 1 MiB, all red"
    told = [example_output("underpass-ltp", "ltp") for _ in range(settings.runs or _RUNS)]
    figures = {
        "ltp.processor": [each["processor_bps"] / 1e9 for each in told],
        "ltp.line-share": [100 * each["line_share"] for each in told],
    }
    for figure, values in figures.items():
        made = record(figure, "underpass", values)
        say(f"{figure}: median {made.median:.4g} {made.unit}")
        result.records.append(made)
    result.notes["engines"] = told[0]
    return result


def run_live(settings: Settings) -> Result:
    """1 GB over LTP through a terminal's proxy, on profile G."""
    result = Result("ltp-live")
    rate_bps = PROFILE_G.forward.rate_bps
    assert rate_bps is not None
    with bench(PROFILE_G, dataclasses.replace(settings, subjects=[], peer_runs=None)) as on:
        over_ltp = Underpass(
            "underpass",
            None,
            hub=bare_paths.hub("ltp", PROFILE_G),
            terminal=bare_paths.terminal("ltp", PROFILE_G),
        )
        on.add(over_ltp)
        for subject, transfers in download_series(on, _SIZE, settings.runs or _LIVE_RUNS):
            made = transfer_record(
                "ltp-live.goodput",
                subject,
                transfers,
                lambda t: goodput_percent(on, t, rate_bps),
            )
            result.records.append(made)
            result.curves["received, MB over s"] = {subject.name: typical_curve(transfers)}
        on.describe(result)
    return result
