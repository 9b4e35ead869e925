from __future__ import annotations

import pytest

from tests.control_api import postgresql
from tests.testbed import addresses
from tests.testbed.client.route import DIRECT
from tests.testbed.control import BEAM, PORT, Control
from tests.testbed.following import Follower
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.testbed


@pytest.mark.parametrize("durable_postgresql", [False, True], ids=["sqlite", "postgresql"])
def test_the_hub_reaches_a_control_service_that_knows_its_beam(durable_postgresql: bool) -> None:
    if durable_postgresql and (reason := postgresql.missing()):
        pytest.skip(reason)
    with Testbed(PAPER_BEAM, terminals=2, shared=True) as testbed:
        control = Control(testbed, durable_postgresql=durable_postgresql)
        with Follower(control, ["beam", "terminal"]) as follower:
            control.register()
            told = [follower.next(60.0) for _ in range(3)]
        assert [event and event.kind for event in told] == ["beam", "terminal", "terminal"]
        [beam] = control.get("/v1/beams")["beams"]
        assert (beam["id"], beam["forward_capacity_bps"]) == (BEAM, PAPER_BEAM.forward.rate_bps)
        nodes = [terminal["node"] for terminal in control.get("/v1/terminals")["terminals"]]
        assert nodes == [10, 11]
        with DIRECT.connect(testbed.hub, addresses.CONTROL, PORT, timeout_s=5):
            pass
        assert control.process.stop() == 0
        control.start()
        assert len(control.get("/v1/beams")["beams"]) == 1
