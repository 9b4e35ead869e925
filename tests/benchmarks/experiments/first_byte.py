"""First byte of a small object on a new connection."""

from __future__ import annotations

from tests.benchmarks.bench import Settings, bench
from tests.benchmarks.experiments.downloads import download_series, seconds, transfer_record
from tests.benchmarks.records import Result
from tests.testbed.profile import PROFILE_G

_SIZE = 1000


def run(settings: Settings) -> Result:
    """Measure each subject's first byte, in round-trip times of the hop."""
    result = Result("first-byte")
    with bench(PROFILE_G, settings) as on:
        for subject, transfers in download_series(on, _SIZE, 30):
            result.records.append(
                transfer_record(
                    "first-byte.g",
                    subject,
                    transfers,
                    lambda t: (t.first_byte_s or seconds(on, t)) / PROFILE_G.rtt_s,
                )
            )
        on.describe(result)
    return result
