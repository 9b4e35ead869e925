"""Forward by satellite with return by the terrestrial path, and both by satellite."""

from __future__ import annotations

from tests.benchmarks.bench import OURS, Series, Settings
from tests.benchmarks.experiments.downloads import seconds, transfer_record
from tests.benchmarks.experiments.several_paths import both_hops
from tests.benchmarks.records import Result
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.client.transfer import Transfer

_LARGE_BYTES = 100_000_000
_SMALL_BYTES = 20_000


def run(settings: Settings) -> Result:
    """Download 100 MB and objects of 20 kB, over one path each way and over the satellite alone."""
    result = Result("one-way")
    with both_hops(settings) as on:
        on.add(
            Underpass(
                OURS,
                None,
                paths=("satellite", "terrestrial"),
                terminal_receives="satellite",
                hub_receives="terrestrial",
            )
        )
        on.add(Underpass("underpass-satellite", None))

        def rate_mbps(transfer: Transfer) -> float:
            return transfer.bytes * 8 / seconds(on, transfer) / 1e6

        def time_ms(transfer: Transfer) -> float:
            return seconds(on, transfer) * 1e3

        def large(access: Access, seed: int, deadline_s: float) -> Transfer:
            return access.download(_LARGE_BYTES, seed, deadline_s)

        def small(access: Access, seed: int, deadline_s: float) -> Transfer:
            return access.download(_SMALL_BYTES, seed, deadline_s)

        done = on.in_turn([Series(subject, large) for subject in on.subjects], 3)
        for subject, transfers in zip(on.subjects, done, strict=True):
            result.records.append(transfer_record("one-way.rate", subject, transfers, rate_mbps))
        done = on.in_turn([Series(subject, small) for subject in on.subjects], 10)
        for subject, transfers in zip(on.subjects, done, strict=True):
            result.records.append(transfer_record("one-way.object", subject, transfers, time_ms))
        on.describe(result)
    return result
