"""Reports of a terminal and its hub reach the control service, whatever breaks on the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.control import REPORTS, Control
from tests.testbed.node import HUB_NODE, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_DISK: dict[str, object] = {"custody": {"durability": "disk"}}
_PLACE = (8.6821, 50.1109)
_FIXED = {"source": "fixed", "longitude": _PLACE[0], "latitude": _PLACE[1]}
_TERMINAL = f"/v1/terminals/{terminal_node(0)}"


class _World:
    """A pair whose hub works with a control service; custody is on disk on both sides."""

    def __init__(self, testbed: Testbed) -> None:
        self.control = Control(testbed)
        self.control.register()
        options = Options(
            terminal={**REPORTS, **_DISK, "positions": _FIXED},
            hub={**self.control.hub_config, **_DISK},
        )
        self.pair = Pair(testbed, options)
        self.announced: set[float] = set()

    def contact(self) -> dict[str, Any]:
        """Return the hub's status of its contact with the service."""
        contact: dict[str, Any] = self.pair.hub.api.get("/v1/control")
        return contact

    def announce(self, count: int) -> None:
        """Announce blockages at the terminal, each of a different length."""
        for _ in range(count):
            duration_s = 10.0 + len(self.announced)
            self.pair.terminal.api.announce(in_s=3000, duration_s=duration_s, confidence=0.5)
            self.announced.add(duration_s)

    def known(self) -> set[float]:
        """Return the lengths of the announced blockages that the service has."""
        table = self.control.get(f"{_TERMINAL}/announcements")["announcements"]
        return {announcement["duration_ms"] / 1000 for announcement in table}

    def observed(self) -> list[dict[str, Any]]:
        """Return the observed blockages that are over, as the service has them."""
        table = self.control.get("/v1/blockages?state=observed")["blockages"]
        return [blockage for blockage in table if blockage["exit"] is not None]

    def links(self) -> dict[str, str]:
        """Return the states of the terminal's links as the service has them."""
        table = self.control.get(f"{_TERMINAL}/links")["links"]
        return {link["link"]: link["state"] for link in table}

    def versions(self) -> dict[tuple[int, str], str]:
        """Return the software versions of nodes, as the service has them."""
        table = self.control.get("/v1/nodes")["nodes"]
        return {(node["node"], node["role"]): node["version"] for node in table}

    def hub_waits_until(self, ready: Any) -> None:
        self.pair.hub.process.wait_until(ready)


def test_no_report_is_lost_while_the_service_the_hub_or_its_token_fails() -> None:
    with Testbed(NEAR) as testbed:
        world = _World(testbed)
        pair, control = world.pair, world.control
        world.announce(2)
        world.hub_waits_until(lambda: world.known() == world.announced)
        world.hub_waits_until(lambda: world.links() == {"forward": "up", "return": "up"})
        version = pair.terminal.api.get("/v1/status")["version"]
        expected = {(HUB_NODE, "gateway"): version, (terminal_node(0), "terminal"): version}
        world.hub_waits_until(lambda: world.versions() == expected)
        [point] = control.get(f"{_TERMINAL}/positions")["positions"]
        assert (point["longitude"], point["latitude"]) == _PLACE
        assert world.contact()["reports"]["state"] == "well"
        world.hub_waits_until(lambda: world.contact()["plans"]["state"] == "well")
        # Both clocks are this machine's.
        assert abs(world.contact()["clock_offset_ms"]) < 50

        pair.terminal.api.block()
        pair.terminal.api.unblock()
        world.hub_waits_until(lambda: len(world.observed()) == 1)
        [blockage] = world.observed()
        assert (blockage["terminal"], blockage["state"]) == (terminal_node(0), "observed")

        control.process.stop()
        world.announce(3)
        world.hub_waits_until(lambda: world.contact()["spooled"] >= 3)
        # While there is no hub, the terminal keeps its reports.
        pair.hub.process.kill()
        world.announce(3)
        pair.hub.start()
        pair.wait_until_ready()
        world.announce(2)
        world.hub_waits_until(lambda: world.contact()["reports"]["state"] == "away")

        control.start()
        world.hub_waits_until(lambda: world.known() == world.announced)
        world.hub_waits_until(lambda: world.contact()["waiting"] <= 2)
        assert world.contact()["refused"] == world.contact()["dropped"] == 0
        world.hub_waits_until(lambda: world.contact()["plans"]["state"] == "well")

        # Another hub's token is not accepted.
        control.gateway_token_file.write_text(control.token("another hub", "gateway", node=2))
        world.hub_waits_until(lambda: world.contact()["reports"]["state"] == "denied")
        assert "403" in world.contact()["reports"]["error"]
        world.announce(1)
        world.hub_waits_until(lambda: world.contact()["waiting"] >= 3)
        log = pair.hub.process.log_path.read_text()
        assert log.count("posting reports is refused") == 1
        assert "control.token_file" in log


def test_an_operator_is_told_a_terminals_streams_by_its_hub() -> None:
    with Testbed(NEAR) as testbed:
        world = _World(testbed)
        hub, control = world.pair.hub, world.control
        world.hub_waits_until(lambda: world.links() == {"forward": "up", "return": "up"})
        world.hub_waits_until(lambda: world.contact()["plans"]["state"] == "well")
        client, route = testbed.terminals[0].client, world.pair.socks5(0)
        with ThreadPoolExecutor(1) as pool:
            # 5 s and more at the hop's rate.
            running = pool.submit(download, client, addresses.ORIGIN, 30_000_000, route=route)
            world.hub_waits_until(
                lambda: any(one["sent_bytes"] > 0 for one in hub.api.get("/v1/streams"))
            )
            listed = control.get(f"{_TERMINAL}/streams")
            assert (listed["gateway"], listed["open"]) == (HUB_NODE, 1)
            [stream] = listed["streams"]
            assert stream["target"] == f"{addresses.ORIGIN}:80"
            assert stream["state"] == "open"
            assert stream["paths"] == [f"terminal-{terminal_node(0)}"]
            assert stream["forward_bytes"] > 0
            assert running.result(60).complete
