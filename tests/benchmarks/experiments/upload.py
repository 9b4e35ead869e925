"""Upload over a narrow return link."""

from __future__ import annotations

import time

from tests.benchmarks.bench import HEADERS_LEAVE, Settings, bench
from tests.benchmarks.experiments.downloads import seconds, transfer_record
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer, upload
from tests.testbed.profile import PROFILE_V

_SIZE = 10_000_000


def run(settings: Settings) -> Result:
    """Measure each subject's goodput, and its overhead on the hop."""
    result = Result("upload")
    rate_bps = PROFILE_V.return_.rate_bps
    assert rate_bps is not None
    with bench(PROFILE_V, settings) as on:
        for subject in on.subjects:
            overheads: list[float] = []

            def one(
                access: Access, seed: int, deadline_s: float, into: list[float] = overheads
            ) -> Transfer:
                on.testbed.satlink.reset_statistics()
                transfer = upload(
                    access.client,
                    access.host,
                    _SIZE,
                    port=access.port,
                    route=access.route,
                    seed=seed,
                    deadline_s=deadline_s,
                )
                time.sleep(PROFILE_V.rtt_s)
                into.append(on.overhead_percent("return", transfer.bytes))
                return transfer

            transfers = on.series(subject, on.runs(30), one)
            result.records.append(
                transfer_record(
                    "upload-10mb.v",
                    subject,
                    transfers,
                    lambda t: 100 * t.bytes * 8 / seconds(on, t) / (rate_bps * HEADERS_LEAVE),
                )
            )
            if all(transfer.complete for transfer in transfers):
                result.records.append(record("overhead-upload.v", subject.name, overheads))
        result.notes |= on.notes()
    return result
