"""Two minutes of the soak that `make bench` runs for twenty."""

from __future__ import annotations

import pytest

from tests.benchmarks.soak.course import PROFILE, Plan, soak, start_pair
from tests.e2e.leftovers import nothing_left
from tests.testbed.client.closed_loop import Mix
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_PLAN = Plan(duration_s=120.0, drain_s=90.0, mix=Mix(browsers=18, senders=6, largest=1_500_000))


@pytest.mark.timeout(600)
def test_every_exchange_through_loss_and_blockages_is_complete() -> None:
    with Testbed(PROFILE) as testbed:
        pair = start_pair(testbed)
        course = soak(pair, _PLAN)
        failed = "\n".join(map(str, course.failed[:20]))
        assert not failed, f"{len(course.failed)} of {len(course.exchanges)}:\n{failed}"
        # Blockages take more than a third of the time; a client that is stuck completes nothing.
        assert len(course.exchanges) > 200
        assert len(course.small) > 20
        nothing_left(pair)
