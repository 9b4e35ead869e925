"""A provider's settings of a terminal and its hub: applied, refused, rolled back, forbidden."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.conftest import SATELLITE, TERRESTRIAL, StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import HUB_NODE, ApiError, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_NODE = terminal_node(0)


def _start(
    start_pair: StartPair,
    may_set: list[str],
    *,
    trial_s: int = 180,
    at_hub: list[str] | None = None,
) -> Pair[Testbed]:
    provider = {"may_set": may_set, "trial_s": trial_s}
    terminal = {"reports": {"to": HUB_NODE}, "provider": provider}
    hub = {"provider": {"may_set": at_hub or [], "trial_s": trial_s}}
    options = Options(paths=("satellite", "terrestrial"), terminal=terminal, hub=hub)
    return start_pair(SATELLITE, options, terrestrial=TERRESTRIAL)


def _set(pair: Pair[Testbed], body: Mapping[str, object], node: int = _NODE) -> int:
    text = pair.hub.api.request("PUT", f"/v1/settings/{node}", body)
    [view] = json.loads(text)
    version: int = view["settings"]
    return version


def _outcome(pair: Pair[Testbed], version: int) -> dict[str, Any]:
    """Wait until the terminal has reported the outcome of a version."""

    def reported() -> bool:
        [view] = pair.hub.api.get("/v1/settings")
        return bool(view["reported"] == version)

    pair.hub.process.wait_until(reported)
    [view] = pair.hub.api.get("/v1/settings")
    found: dict[str, Any] = view
    return found


def _state(pair: Pair[Testbed], version: int, state: str) -> dict[str, Any]:
    """Wait until the terminal reports that a version has reached a state."""

    def is_so_far() -> bool:
        outcome = _outcome(pair, version)
        return bool(outcome["state"] == state)

    pair.hub.process.wait_until(is_so_far)
    return _outcome(pair, version)


def _migrations(pair: Pair[Testbed]) -> list[str]:
    return [each["class"] for each in pair.terminal.api.get("/v1/migrations")]


def _migrating(class_name: str) -> dict[str, object]:
    paths = ["terrestrial", "satellite"]
    return {"class": [{"name": class_name, "policy": "migrate", "paths": paths}]}


def test_policies_are_in_force_without_a_cut_and_over_a_restart(start_pair: StartPair) -> None:
    pair = _start(start_pair, ["class", "path"])
    assert _migrations(pair) == []
    outcome = _outcome(pair, _set(pair, _migrating("bulk")))
    assert (outcome["applied"], outcome["reason"]) == (True, None)
    assert _migrations(pair) == ["bulk"]
    assert download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5()).complete
    for node in (pair.terminal, pair.hub):
        node.process.kill()
        node.start()
    pair.wait_until_ready()
    assert _migrations(pair) == ["bulk"]
    version = pair.hub.api.get("/v1/settings")[0]["settings"]
    assert _outcome(pair, version)["applied"]
    # The next settings replace these: values that they omit are as in the node's configuration.
    assert _outcome(pair, _set(pair, _migrating("normal")))["applied"]
    assert _migrations(pair) == ["normal"]


def test_what_does_not_fit_is_refused_with_a_reason_and_all_stays(start_pair: StartPair) -> None:
    pair = _start(start_pair, ["class", "path"])
    assert _outcome(pair, _set(pair, _migrating("bulk")))["applied"]
    unknown = {"class": [{"name": "gold", "policy": "bonded"}]}
    elsewhere = {"path": [{"name": "b", "neighbour": 7, "remote": "192.0.2.1:4556"}]}
    program = {"path": [{"name": "satellite", "on_demand": {"raise": ["/bin/sh"]}}]}
    for body, said in ((unknown, "gold"), (elsewhere, "neighbour"), (program, "raise")):
        outcome = _outcome(pair, _set(pair, body))
        assert not outcome["applied"]
        assert said in outcome["reason"]
        assert _migrations(pair) == ["bulk"]


def test_what_the_node_forbids_stays_forbidden(start_pair: StartPair) -> None:
    pair = _start(start_pair, ["path"])
    outcome = _outcome(pair, _set(pair, _migrating("bulk")))
    assert not outcome["applied"]
    assert "may_set" in outcome["reason"]
    assert _migrations(pair) == []


def test_a_path_that_is_set_carries_and_goes_again(start_pair: StartPair) -> None:
    pair = _start(start_pair, ["path"])
    [own] = [p for p in pair.terminal.status()["paths"] if p["name"] == "terrestrial"]
    remote = own["sessions"][0]["remote"]
    further = {"name": "second", "neighbour": HUB_NODE, "remote": remote}
    assert _outcome(pair, _set(pair, {"path": [further]}))["applied"]
    pair.terminal.process.wait_until(lambda: pair.terminal.carries(3))
    assert _outcome(pair, _set(pair, {}))["applied"]
    pair.terminal.process.wait_until(
        lambda: {p["name"] for p in pair.terminal.status()["paths"]} == {"satellite", "terrestrial"}
    )


def test_a_terminal_that_is_blocked_has_the_last_ones_when_it_is_back(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, ["class"])
    terrestrial = pair.testbed.terrestrial
    assert terrestrial is not None
    hops = (pair.testbed.satlink, terrestrial)
    for hop in hops:
        hop.block(pair.testbed.terminal.name)
    time.sleep(2.0)
    for name in ("bulk", "normal", "interactive"):
        version = _set(pair, _migrating(name))
    assert pair.hub.api.get("/v1/settings")[0]["waits"]
    for hop in hops:
        hop.unblock(pair.testbed.terminal.name)
    assert _outcome(pair, version)["applied"]
    assert _migrations(pair) == ["interactive"]


def test_a_change_is_confirmed_once_the_hub_is_heard(start_pair: StartPair) -> None:
    pair = _start(start_pair, ["path"])
    version = _set(pair, {"path": [{"name": "satellite", "rtt_ms": 250}]})
    _state(pair, version, "trial")
    assert _state(pair, version, "confirmed")["applied"]
    pair.terminal.process.kill()
    pair.terminal.start()
    _state(pair, version, "confirmed")


def test_a_path_on_which_nobody_answers_is_taken_back_though_the_node_is_killed(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, ["path"], trial_s=20)
    [own] = [p for p in pair.terminal.status()["paths"] if p["name"] == "terrestrial"]
    host, _, _ = own["sessions"][0]["remote"].rpartition(":")
    further = {"name": "second", "neighbour": HUB_NODE, "remote": f"{host}:9"}
    version = _set(pair, {"path": [further]})
    _state(pair, version, "trial")
    pair.terminal.process.kill()
    pair.terminal.start()
    pair.wait_until_ready()
    assert "second" in {p["name"] for p in pair.terminal.status()["paths"]}
    outcome = _state(pair, version, "rolled-back")
    assert not outcome["applied"]
    assert "second" in outcome["reason"]
    own_paths = {"satellite", "terrestrial"}
    pair.terminal.process.wait_until(
        lambda: {p["name"] for p in pair.terminal.status()["paths"]} == own_paths
    )
    assert download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5()).complete
    # A hub that repeats the settings gets the same answer, and nothing is tried.
    pair.hub.process.kill()
    pair.hub.start()
    pair.wait_until_ready()
    _state(pair, version, "rolled-back")
    assert {p["name"] for p in pair.terminal.status()["paths"]} == own_paths


def _at_hub(pair: Pair[Testbed]) -> list[str]:
    return [each["class"] for each in pair.hub.api.get("/v1/migrations")]


# A class' paths and a terminal's, as the hub names them.
_OF_HUB = {
    "class": [{"name": "bulk", "policy": "migrate", "paths": ["terrestrial", "beam"]}],
    "terminal": [{"node": _NODE, "weight": 3, "path": [{"listener": "terrestrial", "rtt_ms": 25}]}],
}


def test_a_hub_takes_its_own_over_once_its_terminals_are_heard(start_pair: StartPair) -> None:
    pair = _start(start_pair, [], at_hub=["class", "terminal"])
    version = _set(pair, _OF_HUB, HUB_NODE)
    _state(pair, version, "trial")
    assert _at_hub(pair) == ["bulk"]
    assert download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5()).complete
    _state(pair, version, "confirmed")
    pair.hub.process.kill()
    pair.hub.start()
    pair.wait_until_ready()
    assert _at_hub(pair) == ["bulk"]
    assert _outcome(pair, version)["state"] == "confirmed"
    # All of them are set anew, and versions rise.
    later = _set(pair, {"terminal": _OF_HUB["terminal"]}, HUB_NODE)
    assert later > version
    _state(pair, later, "confirmed")
    assert _at_hub(pair) == []


def test_a_hub_that_misses_the_terminal_takes_the_change_back(start_pair: StartPair) -> None:
    pair = _start(start_pair, [], trial_s=15, at_hub=["class", "terminal"])
    assert pair.testbed.terrestrial is not None
    version = _set(pair, _OF_HUB, HUB_NODE)
    # Before a sign that counts.
    pair.testbed.terrestrial.block(pair.testbed.terminal.name)
    _state(pair, version, "trial")
    outcome = _state(pair, version, "rolled-back")
    assert not outcome["applied"]
    assert "terrestrial" in outcome["reason"]
    assert _at_hub(pair) == []
    assert download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5()).complete


def test_a_hub_lets_be_set_what_its_configuration_says_and_nothing_else(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, [], at_hub=["terminal"])
    stranger = {"terminal": [{"node": 4_711, "weight": 2}]}
    deaf = {"node": _NODE, "direction": "receive"}
    all_deaf = {**deaf, "path": [{"listener": "terrestrial", "direction": "receive"}]}
    for body, said in (
        (_OF_HUB, "may_set"),
        (stranger, "4711"),
        ({"terminal": [all_deaf]}, "nothing can be sent"),
    ):
        outcome = _outcome(pair, _set(pair, body, HUB_NODE))
        assert outcome["state"] == "refused"
        assert said in outcome["reason"]
        assert _at_hub(pair) == []


def test_nothing_is_set_of_strangers(start_pair: StartPair) -> None:
    pair = _start(start_pair, ["class"])
    with pytest.raises(ApiError, match="404"):
        pair.hub.api.request("PUT", "/v1/settings/4711", {})
    with pytest.raises(ApiError, match="404"):
        pair.terminal.api.request("PUT", f"/v1/settings/{_NODE}", {})
