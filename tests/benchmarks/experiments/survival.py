"""A thousand downloads and a blockage of ten minutes: how many streams live on."""

from __future__ import annotations

import time

from tests.benchmarks.bench import Bench, Settings, bench, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.testbed.client.patient import PatientCrowd
from tests.testbed.profile import PROFILE_V

_CLIENTS = 1000
# More than the origin can hand over while the link is blocked.
_SIZE = 32_000_000
_SEND_TIMEOUT_S = 60
_BEFORE_S = 20.0
_BLOCKED_S = 600.0
# A lone TCP of a peer may need as long to try again.
_AFTER_S = 120.0


def run(settings: Settings) -> Result:
    """Count the downloads that go on behind the blockage, byte for byte."""
    result = Result("survival")
    with bench(PROFILE_V, settings) as on:
        for subject in on.subjects:
            subject.before_series()
            alive, errors = _one(on, subject.access())
            subject.after_series()
            on.drain()
            result.records.append(record("survival.v", subject.name, [float(alive)]))
            result.notes[subject.name] = errors
            say(f"survival  {subject.name}: {alive} of {_CLIENTS} {errors or ''}")
        result.notes |= on.notes()
    return result


def _one(on: Bench, access: Access) -> tuple[int, dict[str, int]]:
    crowd = PatientCrowd(
        access.client,
        access.host,
        clients=_CLIENTS,
        size=_SIZE,
        query=f"&send_timeout_s={_SEND_TIMEOUT_S}",
        port=access.port,
        via=access.route.proxy or (access.host, access.port),
    )
    try:
        crowd.watch(_BEFORE_S)
        on.testbed.satlink.block(on.testbed.terminal.name, for_s=_BLOCKED_S)
        crowd.watch(_BLOCKED_S)
        back = time.monotonic()
        crowd.watch(_AFTER_S)
        return crowd.fresh(back), crowd.errors()
    finally:
        crowd.close()
