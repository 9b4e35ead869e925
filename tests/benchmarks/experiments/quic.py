"""QUIC against TCPCL: large downloads through losses, and the first new byte after blockages."""

from __future__ import annotations

import dataclasses

from tests.benchmarks.bench import OURS, Bench, Settings, bench, say
from tests.benchmarks.experiments.blockages import resumptions
from tests.benchmarks.experiments.downloads import (
    download_series,
    goodput_percent,
    transfer_record,
    typical_curve,
)
from tests.benchmarks.figures.paths import QUIC
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.profile import PROFILE_G, PROFILE_V

_SIZE = 1_000_000_000
_BLOCKAGES = 30


def run(settings: Settings) -> Result:
    """1 GB with 0.05 % and 1 % loss on profile G."""
    result = Result("quic")
    for percent, loss in (("0.05", 0.0005), ("1", 0.01)):
        profile = PROFILE_G.with_loss(loss)
        rate_bps = profile.forward.rate_bps
        assert rate_bps is not None
        with bench(profile, _alone(settings)) as on:
            _goodput(on, result, percent, rate_bps)
            result.notes |= {f"{percent} %, {key}": value for key, value in on.notes().items()}
            result.told |= on.told()
    return result


def _goodput(on: Bench, result: Result, percent: str, rate_bps: float) -> None:
    _add_both(on)
    for subject, transfers in download_series(on, _SIZE, 3):
        result.records.append(
            transfer_record(
                f"quic.goodput-{percent}",
                subject,
                transfers,
                lambda t: goodput_percent(on, t, rate_bps),
            )
        )
        curves = result.curves.setdefault(f"{percent} % lost, received, MB over s", {})
        curves[subject.name] = typical_curve(transfers)


def run_blockages(settings: Settings) -> Result:
    """Blockages of 1 to 120 s on profile V, in downloads and in uploads."""
    result = Result("quic-blockages")
    with bench(PROFILE_V, _alone(settings)) as on:
        _add_both(on)
        rtt_ms = PROFILE_V.rtt_ms
        for way, least in (("down", 1.0), ("up", 0.5)):
            values_of = resumptions(on, settings.runs or _BLOCKAGES, up=way == "up")
            for subject, values in zip(on.subjects, values_of, strict=True):
                p95 = rtt_ms * (quantile(values, 0.95) - least)
                figure = f"quic-blockages.{way}"
                say(f"{figure}  {subject.name}: p95 {p95:.0f} ms beyond {least} round trips")
                result.records.append(record(figure, subject.name, [p95]))
                result.samples[f"{way}, {subject.name}, round trips"] = [values]
        on.describe(result)
    return result


def _alone(settings: Settings) -> Settings:
    """Return the settings without subjects: they are added by hand, and none is a peer."""
    return dataclasses.replace(settings, subjects=[], peer_runs=None)


def _add_both(on: Bench) -> None:
    on.add(Underpass(OURS, None))
    on.add(Underpass(QUIC, None, convergence_layer="quic"))
