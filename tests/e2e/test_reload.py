"""A new configuration while a node runs: clients that it does not concern are not cut."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from underpass_control.toml_text import toml_text

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import Node, Pair, terminal_node
from tests.testbed.programs import built
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node


def _told(node: Node, what: str) -> int:
    return node.process.log_path.read_text().count(what)


def _hangup(node: Node, outcome: str = "configuration read again") -> None:
    """Make a node read its configuration again; wait for the outcome."""
    before = _told(node, outcome)
    os.kill(node.process.pid, signal.SIGHUP)
    node.process.wait_until(lambda: _told(node, outcome) > before)


def _written(node: Node) -> dict[str, Any]:
    return tomllib.loads(node.config_path.read_text())


def _session_ids(node: Node, path: str) -> set[int]:
    paths = node.status()["paths"]
    return {session["id"] for p in paths if p["name"] == path for session in p["sessions"]}


def test_a_terminal_comes_and_goes_while_another_downloads(start_pair: StartPair) -> None:
    pair: Pair[Testbed] = start_pair(terminals=2)
    hub, other = pair.hub, pair.terminals[1]
    clients = [terminal.client for terminal in pair.testbed.terminals]
    both = _written(hub)
    name, second = f"terminal-{terminal_node(0)}", f"terminal-{terminal_node(1)}"
    before = _session_ids(hub, name)
    fragment = hub.config_path.parent / "conf.d" / "second.toml"
    fragment.parent.mkdir()
    with ThreadPoolExecutor() as pool:
        # 80 MB take some 13 s at the hop's rate: all of what follows happens meanwhile.
        running = pool.submit(
            download, clients[0], addresses.ORIGIN, 80_000_000, route=pair.socks5(0)
        )
        cut = pool.submit(download, clients[1], addresses.ORIGIN, 80_000_000, route=pair.socks5(1))
        numbers = {terminal_node(0), terminal_node(1)}
        hub.process.wait_until(
            lambda: {stream["peer"] for stream in hub.api.get("/v1/streams")} == numbers
        )

        alone = copy.deepcopy(both)
        alone["terminal"] = [t for t in both["terminal"] if t["node"] == terminal_node(0)]
        hub.config_path.write_text(toml_text(alone))
        _hangup(hub)
        assert _told(hub, f"terminal.{terminal_node(1)} removed")
        assert [p["name"] for p in hub.status()["paths"]] == [name]
        streams = hub.api.get("/v1/streams")
        opened = {stream["peer"] for stream in streams if stream["state"] == "open"}
        assert opened == {terminal_node(0)}
        other.process.wait_until(lambda: not other.carries(1))

        # The path comes back in a fragment of its own.
        gone = [t for t in both["terminal"] if t["node"] == terminal_node(1)]
        fragment.write_text(toml_text({"terminal": gone}))
        _hangup(hub)
        assert _told(hub, f"terminal.{terminal_node(1)} added")
        other.process.wait_until(lambda: other.carries(1))
        hub.process.wait_until(lambda: hub.carries(2))
        assert download(clients[1], addresses.ORIGIN, 300_000, route=pair.socks5(1)).complete
        assert [p["name"] for p in hub.status()["paths"]] == [name, second]
        # The other end resets the connections that the hub cut, as soon as it hears of it.
        assert not cut.result(timeout=30).complete

        assert running.result(timeout=60).error is None
    # Standby sessions may have been added since; none has gone.
    assert before <= _session_ids(hub, name)


def test_what_cannot_be_taken_over_changes_nothing_and_says_why(start_pair: StartPair) -> None:
    pair: Pair[Testbed] = start_pair()
    hub = pair.hub
    written, text = _written(hub), hub.config_path.read_text()
    refused = "configuration not taken"

    hub.config_path.write_text(text + "\n[log]\nlevel = = 1\n")
    _hangup(hub, refused)
    assert f"{hub.config_path.name} line" in hub.process.log_tail()

    # One part could be applied, the other could not, so neither is.
    mixed = copy.deepcopy(written)
    mixed["terminal"] = [*written["terminal"], {"node": 501}]
    mixed["node"]["number"] = 2
    hub.config_path.write_text(toml_text(mixed))
    _hangup(hub, refused)
    assert "node.number cannot change while the node runs" in hub.process.log_tail()
    assert len(hub.status()["paths"]) == 1
    command = [str(built("underpass")), "reload", "--socket", str(hub.api.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "node.number" in done.stderr

    # The same without that part is applied, by the command as by the signal.
    mixed["node"]["number"] = written["node"]["number"]
    mixed["log"] = {"level": "debug"}
    hub.config_path.write_text(toml_text(mixed))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "terminal.501 added" in done.stdout
    assert len(hub.status()["paths"]) == 2
    assert json.loads(hub.api.request("POST", "/v1/reload")) == {"changes": []}
    assert pair.terminal.carries(1)
    assert download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete


def test_rates_rules_and_the_log_level_change_in_place(start_pair: StartPair) -> None:
    pair: Pair[Testbed] = start_pair()
    terminal, hub = pair.terminal, pair.hub
    name = f"terminal-{terminal_node(0)}"
    before = _session_ids(hub, name)

    written = _written(hub)
    written["terminal"][0]["send_rate_bps"] = 7_000_000
    written["log"]["level"] = "warn"
    hub.config_path.write_text(toml_text(written))
    hub.api.request("POST", "/v1/reload")
    assert hub.status()["paths"][0]["rate_bps"] == 7_000_000
    quiet = hub.process.log_path.stat().st_size
    assert download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete
    assert hub.process.log_path.stat().st_size == quiet, "the end of a stream is told at info"
    # Standby sessions may have been added since; none has gone.
    assert before <= _session_ids(hub, name)

    # From now on no client may enter, and then all may again.
    written = _written(terminal)
    networks = written["edge"]["client_networks"]
    for allowed, complete in ((["192.0.2.0/24"], False), (networks, True)):
        written["edge"]["client_networks"] = allowed
        terminal.config_path.write_text(toml_text(written))
        _hangup(terminal)
        done = download(pair.client, addresses.ORIGIN, 50_000, route=pair.socks5())
        assert done.complete is complete


def test_a_path_moves_and_its_streams_live_on(start_pair: StartPair) -> None:
    pair: Pair[Testbed] = start_pair()
    terminal = pair.terminal
    written = _written(terminal)
    # The same hub by a path of another name: the old path is closed, the new one opened.
    written["path"][0]["name"] = "other"
    terminal.config_path.write_text(toml_text(written))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, 20_000_000, route=pair.socks5()
        )
        terminal.process.wait_until(lambda: bool(terminal.api.get("/v1/streams")))
        _hangup(terminal)
        assert running.result(timeout=60).error is None
    assert [p["name"] for p in terminal.status()["paths"]] == ["other"]
