"""Upload over a narrow return link."""

from __future__ import annotations

from tests.benchmarks.bench import Settings, bench
from tests.benchmarks.experiments.downloads import Overheads, goodput_percent, transfer_record
from tests.benchmarks.records import Result
from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import PROFILE_V

_SIZE = 10_000_000


def run(settings: Settings) -> Result:
    """Measure each subject's goodput, and its overhead on the hop."""
    result = Result("upload")
    rate_bps = PROFILE_V.return_.rate_bps
    assert rate_bps is not None
    with bench(PROFILE_V, settings) as on:
        overheads = Overheads(on, "return", "forward")

        def one(access: Access, seed: int, deadline_s: float) -> Transfer:
            return access.upload(_SIZE, seed, deadline_s)

        done = on.in_turn(overheads.series(one), 30)
        for subject, transfers in zip(on.subjects, done, strict=True):
            result.records.append(
                transfer_record(
                    "upload-10mb.v",
                    subject,
                    transfers,
                    lambda t: goodput_percent(on, t, rate_bps),
                )
            )
            if all(transfer.complete for transfer in transfers):
                result.records += overheads.records(
                    subject.name, "overhead-upload.v", "overhead-upload-back.v"
                )
        on.describe(result)
    return result
