"""Goodput of large downloads, and their overhead on the hop."""

from __future__ import annotations

from tests.benchmarks.bench import Settings, bench
from tests.benchmarks.experiments.downloads import (
    Overheads,
    goodput_percent,
    transfer_record,
    typical_curve,
)
from tests.benchmarks.records import Result
from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import PROFILE_G, Profile

_MB = 1_000_000


def run_200mb(settings: Settings) -> Result:
    """200 MB, profile G, with the overhead on the hop."""
    return _bulk(settings, "bulk-200mb", "bulk-200mb.g", PROFILE_G, 200 * _MB, overhead=True)


def run_1gb(settings: Settings) -> Result:
    """1 GB, profile G."""
    return _bulk(settings, "bulk-1gb", "bulk-1gb.g", PROFILE_G, 1000 * _MB)


def run_1gb_loss(settings: Settings) -> Result:
    """1 GB with 1 % loss."""
    profile = PROFILE_G.with_loss(0.01)
    return _bulk(settings, "bulk-1gb-loss", "bulk-1gb.g1", profile, 1000 * _MB)


def _bulk(
    settings: Settings,
    name: str,
    figure_id: str,
    profile: Profile,
    size: int,
    *,
    overhead: bool = False,
) -> Result:
    result = Result(name)
    rate_bps = profile.forward.rate_bps
    assert rate_bps is not None
    with bench(profile, settings) as on:
        overheads = Overheads(on, "forward", "return")

        def one(access: Access, seed: int, deadline_s: float) -> Transfer:
            return access.download(size, seed, deadline_s)

        done = on.in_turn(overheads.series(one), 3)
        for subject, transfers in zip(on.subjects, done, strict=True):
            result.records.append(
                transfer_record(
                    figure_id,
                    subject,
                    transfers,
                    lambda t: goodput_percent(on, t, rate_bps),
                )
            )
            if overhead and all(transfer.complete for transfer in transfers):
                result.records += overheads.records(
                    subject.name, "overhead-download.g", "overhead-download-back.g"
                )
            result.curves.setdefault("received, MB over s", {})[subject.name] = typical_curve(
                transfers
            )
        on.describe(result)
    return result
