from __future__ import annotations

import pytest

from tests.e2e.conftest import NEAR, StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import Options, transparent

pytestmark = pytest.mark.node


def test_interception_takes_a_client_in_and_lets_it_pass_when_switched_off(
    start_pair: StartPair,
) -> None:
    pair = start_pair(options=Options(terminal={"edge": transparent("lan")}))
    for origin in (addresses.ORIGIN, addresses.ORIGIN6):
        taken_in = download(pair.client, origin, 1_000_000)
        assert taken_in.error is None
        # The terminal itself accepts the connection; plain IP needs the hop for it.
        assert taken_in.connected_s is not None
        assert taken_in.connected_s < NEAR.rtt_s
    pair.terminal.api.intercept(enabled=False)
    passed = download(pair.client, addresses.ORIGIN, 100_000)
    assert passed.error is None
    assert passed.connected_s is not None
    assert passed.connected_s >= NEAR.rtt_s
