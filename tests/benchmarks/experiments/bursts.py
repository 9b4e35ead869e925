"""Bursts of loss."""

from __future__ import annotations

import dataclasses

from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Settings
from tests.benchmarks.experiments.downloads import (
    download_series,
    goodput_percent,
    transfer_record,
    typical_curve,
)
from tests.benchmarks.records import Result
from tests.testbed.profile import PROFILE_G, symmetric
from tests.testbed.topology import Testbed

_SIZE = 1_000_000_000
_LOSS, _BURST_PACKETS = 0.01, 20
_TO_GOOD = 1 / _BURST_PACKETS
# The chain is in the bad state, which loses every packet, for to_bad / (to_bad + to_good) of the
# time (Gilbert 1960).
MODEL = {
    "model": "gilbert-elliott",
    "to_bad": _TO_GOOD * _LOSS / (1 - _LOSS),
    "to_good": _TO_GOOD,
}


def run(settings: Settings) -> Result:
    """1 GB, profile G, with 1 % of all packets lost, in bursts of some twenty."""
    result = Result("bursts")
    link = dataclasses.replace(PROFILE_G.forward, other={"loss": MODEL})
    rate_bps = link.rate_bps
    assert rate_bps is not None
    with Testbed(symmetric("bursts", link), sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start_untold()
        for subject, transfers in download_series(on, _SIZE, 3):
            result.records.append(
                transfer_record(
                    "bursts.g",
                    subject,
                    transfers,
                    lambda t: goodput_percent(on, t, rate_bps),
                )
            )
            curves = result.curves.setdefault("received, MB over s", {})
            curves[subject.name] = typical_curve(transfers)
        on.describe(result)
    return result
