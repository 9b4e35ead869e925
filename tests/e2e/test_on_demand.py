"""A satellite path that is up only while it is needed, on two real hops."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SATELLITE, StartPair, classes_with
from tests.testbed import addresses
from tests.testbed.client.transfer import download, upload
from tests.testbed.node import ApiError, Node, Options, Pair
from tests.testbed.profile import Link, symmetric
from tests.testbed.programs import built
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_TERRESTRIAL = symmetric("terrestrial", Link(rate_bps=4_000_000, delay_ms=10.0, queue_ms=200.0))
_TIMES = {
    "within_s": 2.0,
    "others_down_s": 0.2,
    "idle_s": 2.0,
    "least_up_s": 3.0,
    "least_down_s": 1.0,
    "connect_s": 5.0,
}


def _start(
    start_pair: StartPair,
    changes: Mapping[str, object] | None = None,
    policies: Mapping[str, Mapping[str, object]] | None = None,
) -> Pair[Testbed]:
    """Start a pair whose satellite path is on demand; `policies` are of classes at both ends."""
    classes = classes_with(policies or {})
    at_hub = [{**each, "paths": ["beam"] if "paths" in each else None} for each in classes]
    options = Options(
        paths=("satellite", "terrestrial"),
        on_demand={"satellite": {**_TIMES, **(changes or {})}},
        terminal={"class": classes},
        hub={"class": at_hub},
    )
    return start_pair(SATELLITE, options, terrestrial=_TERRESTRIAL)


def _state(node: Node, path: str = "satellite") -> dict[str, Any]:
    view = next(each for each in node.status()["paths"] if each["name"] == path)
    state: dict[str, Any] = view["on_demand"]
    return {**state, "session": view["up"], "blocked": view["blocked"]}


def _is_probed(node: Node, path: str) -> bool:
    view = next(each for each in node.status()["paths"] if each["name"] == path)
    probed: bool = view["link"]["probed"]
    return probed


# The hub's report counts for 15 s.
def _wait(pair: Pair[Testbed], *, up: bool, within_s: float = 25.0) -> None:
    pair.terminal.process.wait_until(lambda: _state(pair.terminal)["up"] == up, timeout_s=within_s)


def _bring_up(node: Node, *arguments: str) -> str:
    argv = [str(built("underpass")), "bring-up", "satellite", *arguments]
    argv += ["--socket", str(node.api.path)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=10).stdout


def _on_the_hop(pair: Pair[Testbed], direction: str) -> int:
    links = pair.testbed.satlink.statistics()["terminals"].values()
    return sum(int(link[direction]["bytes_sent"]) for link in links)


def test_small_exchanges_bring_nothing_up_and_a_released_path_carries_nothing(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair)
    pair.testbed.satlink.reset_statistics()
    for _ in range(10):
        assert download(pair.client, addresses.ORIGIN, 20_000, route=pair.socks5()).complete
        time.sleep(0.2)
    state = _state(pair.terminal)
    assert not state["up"]
    assert not state["session"]
    assert state["brought_up"] == {}
    # The hub does not take a released path as blocked or lost.
    assert not _state(pair.hub, pair.hub_path("satellite"))["blocked"]
    assert [_on_the_hop(pair, direction) for direction in ("forward", "return")] == [0, 0]


@pytest.mark.parametrize("transfer", [download, upload])
def test_a_long_transfer_brings_it_up_uses_it_and_its_end_releases_it(
    start_pair: StartPair, transfer: Any
) -> None:
    pair = _start(start_pair)
    done = transfer(pair.client, addresses.ORIGIN, 15_000_000, route=pair.http_forward())
    assert done.error is None
    # By the terrestrial path alone it would take 30 s.
    assert done.last_byte_s is not None
    assert done.last_byte_s < 22.0
    times = _state(pair.terminal)["brought_up"]
    assert times == {"neighbour": 1} if transfer is download else {"backlog": 1}
    _wait(pair, up=False)
    hub_path = pair.hub_path("satellite")
    pair.hub.process.wait_until(lambda: not _state(pair.hub, hub_path)["session"])
    time.sleep(2.0)
    assert not _state(pair.hub, hub_path)["blocked"]
    metrics = pair.terminal.api.metrics()
    up = next(value for name, value in metrics.items() if "path_up_seconds_total" in name)
    assert 3.0 <= up < 25.0


def test_when_the_other_path_dies_it_takes_over(start_pair: StartPair) -> None:
    pair = _start(start_pair)
    hop = pair.testbed.terrestrial
    assert hop is not None
    # Once beacons have been heard, silence means a blockage.
    pair.terminal.process.wait_until(lambda: _is_probed(pair.terminal, "terrestrial"))
    hop.block(pair.testbed.terminal.name)
    done = download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5())
    assert done.complete
    assert done.last_byte_s is not None
    assert done.last_byte_s < 8.0
    assert _state(pair.terminal)["need"] == "others-down"
    hop.unblock(pair.testbed.terminal.name)
    _wait(pair, up=False)


def test_what_is_pinned_to_it_waits_in_custody_and_brings_it_up(start_pair: StartPair) -> None:
    pinned = {"normal": {"policy": "pinned", "paths": ["satellite"]}}
    pair = _start(start_pair, policies=pinned)
    done = download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5())
    assert done.complete
    assert _state(pair.terminal)["brought_up"] == {"pinned": 1}


def test_an_operator_brings_it_up_and_it_stays_so_over_a_restart(start_pair: StartPair) -> None:
    pair = _start(start_pair)
    assert "until you say otherwise" in _bring_up(pair.terminal)
    pair.terminal.process.wait_until(lambda: _state(pair.terminal)["session"])
    time.sleep(6.0)
    assert _state(pair.terminal)["need"] == "operator"
    pair.terminal.process.kill()
    pair.terminal.start()
    pair.terminal.process.wait_until(lambda: pair.terminal.carries(2))
    assert "released" in _bring_up(pair.terminal, "--release")
    _bring_up(pair.terminal, "--as-needed")
    assert _state(pair.terminal)["held"] is None
    with pytest.raises(ApiError, match="on_demand"):
        pair.terminal.api.request("PATCH", "/v1/paths/terrestrial", {"brought_up": True})


def test_programs_bring_it_up_and_release_it(start_pair: StartPair, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = tmp_path / "modem"
    script.write_text(f'#!/bin/sh\necho "$1 $UNDERPASS_PATH" >> {told}\n')
    script.chmod(0o755)
    programs = {"raise": [str(script), "up"], "release": [str(script), "down"]}
    pair = _start(start_pair, programs)
    # At its start the node takes down whatever an earlier run left.
    pair.terminal.process.wait_until(
        lambda: told.exists() and told.read_text() == "down satellite\n"
    )
    _bring_up(pair.terminal)
    pair.terminal.process.wait_until(lambda: pair.terminal.carries(2))
    assert told.read_text().splitlines()[1:] == ["up satellite"]
    _bring_up(pair.terminal, "--release")
    pair.terminal.process.wait_until(lambda: told.read_text().endswith("down satellite\n"))
    # Another program takes effect only when the node is started again.
    text = pair.terminal.config_path.read_text()
    pair.terminal.config_path.write_text(text.replace('"up"', '"on"'))
    with pytest.raises(ApiError, match="restart"):
        pair.terminal.api.request("POST", "/v1/reload")
    pair.terminal.config_path.write_text(text.replace("idle_s = 2.0", "idle_s = 9.0"))
    pair.terminal.api.request("POST", "/v1/reload")


@pytest.mark.parametrize("fault", ["exit 3", "sleep 60"])
def test_a_program_that_fails_leaves_the_path_down_and_all_else_as_it_is(
    start_pair: StartPair, tmp_path: Path, fault: str
) -> None:
    script = tmp_path / "modem"
    script.write_text(f"#!/bin/sh\n{fault}\n")
    script.chmod(0o755)
    pair = _start(start_pair, {"raise": [str(script)], "command_s": 1.0})
    _bring_up(pair.terminal)
    _wait(pair, up=False)
    assert download(pair.client, addresses.ORIGIN, 20_000, route=pair.socks5()).complete
    assert not _state(pair.terminal)["session"]


def test_one_that_is_up_lives_through_an_upgrade(start_pair: StartPair) -> None:
    pair = _start(start_pair)
    _bring_up(pair.terminal)
    pair.terminal.process.wait_until(lambda: pair.terminal.carries(2))
    pair.terminal.upgrade()
    pair.terminal.process.wait_until(lambda: pair.terminal.carries(2))
    assert _state(pair.terminal)["up"]
    _bring_up(pair.terminal, "--as-needed")
    _wait(pair, up=False)
