"""Objects of 1 and 8 MB from request to last byte."""

from __future__ import annotations

from tests.benchmarks.bench import Settings, bench
from tests.benchmarks.experiments.downloads import (
    download_series,
    seconds,
    transfer_record,
    typical_curve,
)
from tests.benchmarks.records import Result
from tests.testbed.profile import PROFILE_G, PROFILE_V, Profile

_MB = 1_000_000


def run_1mb(settings: Settings) -> Result:
    """1 MB, profile G."""
    return _objects(settings, "object-1mb", "object-1mb.g", PROFILE_G, _MB)


def run_1mb_idle(settings: Settings) -> Result:
    """1 MB, profile G, with the sessions idle before every run."""
    return _objects(
        settings, "object-1mb-idle", "object-1mb-idle.g", PROFILE_G, _MB, idle_before_each=True
    )


def run_8mb_no_loss(settings: Settings) -> Result:
    """8 MB, profile G without its loss."""
    profile = PROFILE_G.with_loss(0)
    return _objects(settings, "object-8mb-no-loss", "object-8mb.g0", profile, 8 * _MB)


def run_8mb(settings: Settings) -> Result:
    """8 MB, profile G."""
    return _objects(settings, "object-8mb", "object-8mb.g", PROFILE_G, 8 * _MB)


def run_8mb_vehicle(settings: Settings) -> Result:
    """8 MB, profile V."""
    return _objects(settings, "object-8mb-vehicle", "object-8mb.v", PROFILE_V, 8 * _MB)


def _objects(
    settings: Settings,
    name: str,
    figure_id: str,
    profile: Profile,
    size: int,
    *,
    idle_before_each: bool = False,
) -> Result:
    result = Result(name)
    with bench(profile, settings) as on:
        for subject, transfers in download_series(on, size, 30, idle_before_each=idle_before_each):
            result.records.append(
                transfer_record(figure_id, subject, transfers, lambda t: seconds(on, t))
            )
            result.curves.setdefault("received, MB over s", {})[subject.name] = typical_curve(
                transfers
            )
        on.describe(result)
    return result
