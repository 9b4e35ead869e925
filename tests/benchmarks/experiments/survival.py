"""A thousand downloads and a blockage of ten minutes: how many streams survive."""

from __future__ import annotations

import time

from tests.benchmarks import subjects
from tests.benchmarks.bench import Bench, Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.client.patient import PatientCrowd
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

_CLIENTS = 1000
_SEND_TIMEOUT_S = 60
_BEFORE_S = 20.0
_BLOCKED_S = 600.0
# A peer's plain TCP may need this long to retry.
_AFTER_S = 120.0
# Together three times the link's rate, so that every buffer on the way is full; by the end of the
# blockage that is some 9 MB for each, which a disk of 15 GB has room for.
_RATE_BPS = 120_000
# More than an origin sends at that rate.
_SIZE = 32_000_000
# A server's send buffer: it fills in little more than a minute at that rate, so an origin whose
# data nobody reads gives up long before the blockage is over.
_ORIGIN_WMEM = "4096 16384 1048576"
_HUB = {
    "custody": {"durability": "disk", "quota_bytes": 14 << 30, "quota_bundles": 4_000_000},
}


def run(settings: Settings) -> Result:
    """Count the downloads that continue after the blockage, byte for byte."""
    result = Result("survival")
    left_out: dict[str, str] = {}
    for name in settings.subjects:
        # A new test bed each: one subject's remaining custody must not affect the next.
        with Testbed(PROFILE_V, seed=settings.seed) as testbed:
            testbed.origin.sysctl(**{"net.ipv4.tcp_wmem": _ORIGIN_WMEM})
            on = Bench(testbed, settings)
            on.add(_subject(name))
            left_out |= on.left_out
            for subject in on.subjects:
                subject.before_run()
                alive, errors = _one(on, subject.access())
                result.records.append(record("survival.v", name, [float(alive)]))
                result.notes[name] = errors
                say(f"survival  {name}: {alive} of {_CLIENTS} {errors or ''}")
                result.told |= on.told()
    result.notes["left out"] = left_out
    return result


def _subject(name: str) -> Subject:
    if name == "underpass":
        return Underpass(name, None, hub=_HUB)
    return subjects.subject(name)


def _one(on: Bench, access: Access) -> tuple[int, dict[str, int]]:
    crowd = PatientCrowd(
        access.client,
        access.host,
        clients=_CLIENTS,
        size=_SIZE,
        query=f"&send_timeout_s={_SEND_TIMEOUT_S}&rate_bps={_RATE_BPS}",
        port=access.port,
        via=[access.route.proxy or (access.host, access.port)],
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
