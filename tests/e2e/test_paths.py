"""Several paths to one hub: both carry, one fails, and a class uses only its allowed ones."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import SATELLITE, TERRESTRIAL, StartPair, amid, classes_with, whole
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import ApiError, Node, Options, Pair, PathName
from tests.testbed.programs import built
from tests.testbed.satlink import Satlink
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_SIZE = 10_000_000
# Alone, the one flow is complete first by the terrestrial path, the other by the satellite.
_SMALL, _LARGE = 20_000, 2_000_000
_PATHS: tuple[PathName, ...] = ("satellite", "terrestrial")


def _start(
    start_pair: StartPair,
    policies: Mapping[str, Mapping[str, object]] | None = None,
    meters: Mapping[PathName, Mapping[str, object]] | None = None,
) -> Pair[Testbed]:
    """Start a pair with both paths; `policies` are keys of classes, for terminal and hub alike.

    `meters` are those of the paths whose bytes are paid for.
    """
    classes = classes_with(policies or {})
    at_hub = [{**each, "paths": _at_hub(each.get("paths"))} for each in classes]
    options = Options(
        paths=("satellite", "terrestrial"),
        meters=meters or {},
        terminal={"class": classes},
        hub={"class": at_hub},
    )
    return start_pair(SATELLITE, options, terrestrial=TERRESTRIAL)


def _at_hub(paths: object) -> list[object] | None:
    """Name paths as the hub does, after its listeners."""
    if not isinstance(paths, list):
        return None
    return ["beam" if path == "satellite" else path for path in paths]


def _terrestrial(pair: Pair[Testbed]) -> Satlink:
    assert pair.testbed.terrestrial is not None
    return pair.testbed.terrestrial


def _sent_bytes(node: Node, path: str, class_name: str = "normal") -> float:
    labels = f'path="{path}",class="{class_name}"'
    return node.api.metrics().get(f"underpass_path_sent_bundle_bytes_total{{{labels}}}", 0.0)


def _meter(node: Node, path: str) -> dict[str, Any]:
    meter = next(each["meter"] for each in node.status()["paths"] if each["name"] == path)
    assert isinstance(meter, dict)
    return meter


@pytest.mark.parametrize("transfer", [download, upload])
def test_both_paths_carry_a_transfer(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    pair = _start(start_pair)
    assert {path["name"] for path in pair.terminal.status()["paths"]} == {
        "satellite",
        "terrestrial",
    }
    done = transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
    assert done.error is None
    names: list[str]
    if transfer is download:
        sender, names = pair.hub, [pair.hub_path("satellite"), pair.hub_path("terrestrial")]
    else:
        sender, names = pair.terminal, ["satellite", "terrestrial"]
    sent = [_sent_bytes(sender, name) for name in names]
    assert min(sent) > _SIZE / 10, sent
    assert sum(sent) < 1.1 * _SIZE


@pytest.mark.parametrize("path", ["terrestrial", "satellite"])
@pytest.mark.parametrize("transfer", [download, upload])
def test_what_a_path_had_goes_by_the_other_when_it_dies(
    start_pair: StartPair, transfer: Callable[..., Transfer], path: str
) -> None:
    pair = _start(start_pair)
    hop = _terrestrial(pair) if path == "terrestrial" else pair.testbed.satlink
    with amid(pair, transfer, _SIZE) as running:
        hop.block(pair.testbed.terminal.name)
        done = running.result(60)
    whole(done)


def test_a_path_that_flaps_breaks_no_stream(start_pair: StartPair) -> None:
    pair, over = _start(start_pair), threading.Event()

    def flap() -> None:
        while not over.wait(1.0):
            _terrestrial(pair).block(pair.testbed.terminal.name, for_s=0.5)

    with ThreadPoolExecutor(1) as pool:
        flapping = pool.submit(flap)
        try:
            for transfer in (download, upload):
                whole(transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))
        finally:
            over.set()
            flapping.result(10)


def test_a_class_that_is_pinned_leaves_the_other_path_empty(start_pair: StartPair) -> None:
    pinned = {"normal": {"policy": "pinned", "paths": ["satellite"]}}
    pair = _start(start_pair, pinned)
    for transfer in (download, upload):
        assert transfer(pair.client, addresses.ORIGIN, 2_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, pair.hub_path("terrestrial")) == 0
    assert _sent_bytes(pair.terminal, "terrestrial") == 0
    with ThreadPoolExecutor(1) as pool:
        pair.testbed.satlink.block(pair.testbed.terminal.name)
        running = pool.submit(download, pair.client, addresses.ORIGIN, 100_000, route=pair.socks5())
        time.sleep(2.0)
        assert not running.done()
        pair.testbed.satlink.unblock(pair.testbed.terminal.name)
        assert running.result(30).complete
    assert _sent_bytes(pair.hub, pair.hub_path("terrestrial")) == 0


def test_failover_goes_by_the_first_and_then_by_the_second(start_pair: StartPair) -> None:
    policy = {"normal": {"policy": "failover", "paths": ["terrestrial", "satellite"]}}
    pair = _start(start_pair, policy)
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, pair.hub_path("satellite")) == 0
    _terrestrial(pair).block(pair.testbed.terminal.name)
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, pair.hub_path("satellite")) >= 1_000_000


def test_duplicated_bundles_go_by_both_and_arrive_once(start_pair: StartPair) -> None:
    policy = {"normal": {"policy": "duplicated"}}
    pair = _start(start_pair, policy)
    assert download(pair.client, addresses.ORIGIN, 500_000, route=pair.socks5()).complete
    by_satellite = _sent_bytes(pair.hub, pair.hub_path("satellite"))
    by_terrestrial = _sent_bytes(pair.hub, pair.hub_path("terrestrial"))
    assert by_terrestrial >= 400_000
    assert by_satellite >= 100_000


def test_a_half_closed_exchange_lives_through_the_death_of_a_path(start_pair: StartPair) -> None:
    pair = _start(start_pair)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5(), half_close=True
        )
        time.sleep(1.0)
        _terrestrial(pair).block(pair.testbed.terminal.name)
        assert running.result(60).complete


def _goes_by(node: Node) -> dict[str, object]:
    view: dict[str, object]
    [view] = node.status()["migrations"]
    return view


def _migrate(node: Node, path: str) -> str:
    command = [str(built("underpass")), "migrate", "normal", path, "--socket", str(node.api.path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


def _holds(node: Node, *arguments: str) -> str:
    command = [str(built("underpass")), "holds", *arguments, "--socket", str(node.api.path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


def _kill(node: Node) -> None:
    node.process.kill()
    node.start()


_MIGRATE = {"normal": {"policy": "migrate", "paths": ["terrestrial", "satellite"]}}


@pytest.mark.parametrize("transfer", [download, upload])
def test_a_class_moves_by_command_while_its_stream_lives_on(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    pair = _start(start_pair, _MIGRATE)
    sender = pair.hub if transfer is download else pair.terminal
    with amid(pair, transfer, _SIZE) as running:
        for node in (pair.terminal, pair.hub):
            at_node = node.status()["paths"]
            names = {path["name"] for path in at_node}
            [satellite] = names - {"terrestrial", pair.hub_path("terrestrial")}
            assert satellite in _migrate(node, satellite)
        assert not running.done()
        moved = _goes_by(sender)
        done = running.result(60)
    whole(done)
    assert (moved["reason"], moved["held"]) == ("operator", True)
    name = "satellite" if sender is pair.terminal else pair.hub_path("satellite")
    assert _sent_bytes(sender, name) > _SIZE / 2
    counted = 'underpass_class_migrations_total{class="normal",neighbour="%d",reason="operator"}'
    neighbour = moved["neighbour"]
    assert sender.api.metrics()[counted % neighbour] == 1


def test_what_an_operator_set_outlives_a_kill_and_an_upgrade_until_it_is_released(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, _MIGRATE)
    satellite, terrestrial = pair.hub_path("satellite"), pair.hub_path("terrestrial")
    _migrate(pair.hub, satellite)
    pair.hub.api.request("PATCH", f"/v1/paths/{terrestrial}", {"blocked": True})
    for restart in (_kill, Node.upgrade):
        before = _sent_bytes(pair.hub, satellite)
        restart(pair.hub)
        pair.wait_until_ready()
        holds = pair.hub.api.get("/v1/holds")
        assert [hold["what"] for hold in holds] == ["migration", "blocked"]
        assert all(hold["in_force"] and hold["by"].startswith("uid ") for hold in holds)
        assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
        assert _sent_bytes(pair.hub, satellite) != before
        assert _sent_bytes(pair.hub, terrestrial, "signalling") == 0
        assert _sent_bytes(pair.hub, terrestrial) == 0
    pair.hub.api.request("POST", "/v1/link/unblock")
    # The path is free again, but the class is still held on the other one.
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, terrestrial) == 0
    [hold] = pair.hub.api.get("/v1/holds")
    assert _holds(pair.hub, "--release", str(hold["id"])) == "nothing is held\n"
    _kill(pair.hub)
    pair.wait_until_ready()
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, terrestrial) > 1_000_000


def test_a_class_leaves_a_full_path_by_rule_and_a_dead_one_at_once(start_pair: StartPair) -> None:
    by_rule = {"after_s": 1.0, "back_after_s": 1.0}
    pair = _start(start_pair, {"normal": {**_MIGRATE["normal"], "migrate": by_rule}})
    done = download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
    assert done.complete
    moves = _goes_by(pair.hub)["moves"]
    assert isinstance(moves, dict)
    assert moves["delay"] == 1
    assert _sent_bytes(pair.hub, pair.hub_path("satellite")) > _SIZE / 4
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(download, pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
        time.sleep(1.0)
        where = _goes_by(pair.hub)["path"]
        dead = pair.testbed.satlink if where == pair.hub_path("satellite") else _terrestrial(pair)
        dead.block(pair.testbed.terminal.name)
        assert running.result(60).complete
    moves = _goes_by(pair.hub)["moves"]
    assert isinstance(moves, dict)
    assert moves["down"] >= 1


def test_a_class_that_does_not_move_is_not_moved(start_pair: StartPair) -> None:
    pair = _start(start_pair, _MIGRATE)
    for class_name, path, status in (
        ("bulk", "satellite", 422),
        ("none", "satellite", 404),
        ("normal", "moon", 404),
    ):
        order = {"class": class_name, "path": path}
        with pytest.raises(ApiError, match=str(status)):
            pair.terminal.api.request("POST", "/v1/migrations", order)


def _carries_everywhere(node: Node, class_name: str) -> bool:
    paths = node.status()["paths"]
    of_class = [
        any(session["carrying"] and session["class"] == class_name for session in path["sessions"])
        for path in paths
    ]
    return all(of_class)


def _flows(pair: Pair[Testbed], path: PathName, class_name: str) -> float:
    labels = f'path="{pair.hub_path(path)}",class="{class_name}"'
    return pair.hub.api.metrics().get(f"underpass_path_flows_total{{{labels}}}", 0.0)


@pytest.mark.parametrize("proxy", ["http", "socks5"])
def test_each_answer_goes_by_the_path_that_completes_it_first(
    start_pair: StartPair, proxy: str
) -> None:
    pair = _start(start_pair, {"normal": {"policy": "minfct"}})
    # While a path's session of the class is not up, flows go to other paths.
    pair.hub.process.wait_until(lambda: _carries_everywhere(pair.hub, "normal"))
    route = pair.http_forward() if proxy == "http" else pair.socks5()
    sent = {}
    for size in (_SMALL, _LARGE):
        before = [_sent_bytes(pair.hub, pair.hub_path(path)) for path in _PATHS]
        assert download(pair.client, addresses.ORIGIN, size, route=route).error is None
        after = [_sent_bytes(pair.hub, pair.hub_path(path)) for path in _PATHS]
        sent[size] = [late - early for late, early in zip(after, before, strict=True)]
    by_satellite, by_terrestrial = sent[_SMALL]
    assert by_satellite < _SMALL / 10 < _SMALL < by_terrestrial
    # The head of the answer tells the size: all of it goes by the satellite.
    by_satellite, by_terrestrial = sent[_LARGE]
    assert by_terrestrial < _LARGE / 100 < _LARGE < by_satellite
    assert [_flows(pair, path, "normal") for path in _PATHS] == [1, 1]


def test_a_rule_of_the_hub_gives_large_answers_another_class(start_pair: StartPair) -> None:
    rule = {"name": "large", "min_size_bytes": 1_000_000, "class": "bulk"}
    options = Options(paths=("satellite", "terrestrial"), hub={"edge": {"rule": [rule]}})
    pair = start_pair(SATELLITE, options, terrestrial=TERRESTRIAL)
    for size in (_SMALL, _LARGE):
        assert download(pair.client, addresses.ORIGIN, size, route=pair.http_forward()).complete
    sent = [
        sum(_sent_bytes(pair.hub, pair.hub_path(path), name) for path in _PATHS)
        for name in ("normal", "bulk")
    ]
    assert _SMALL < sent[0] < 2 * _SMALL
    assert sent[1] > _LARGE
    assert pair.hub.status()["edge"]["rules"] == [{"name": "large", "class": "bulk", "matched": 1}]
    labels = 'rule="large",class="bulk"'
    assert pair.hub.api.metrics()[f"underpass_edge_rule_matches_total{{{labels}}}"] == 1


def test_an_operator_is_told_why_each_answer_goes_where_it_goes(start_pair: StartPair) -> None:
    pair = _start(start_pair, {"normal": {"policy": "minfct"}})
    pair.hub.process.wait_until(lambda: _carries_everywhere(pair.hub, "normal"))
    satellite, terrestrial = pair.hub_path("satellite"), pair.hub_path("terrestrial")
    assert download(pair.client, addresses.ORIGIN, _SMALL, route=pair.http_forward()).complete
    meant = ["--destination", addresses.ORIGIN, "--for", "8", "--json"]
    command = [str(built("underpass")), "decisions", *meant, "--socket", str(pair.hub.api.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as told:
        time.sleep(1.0)
        for size in (_SMALL, _LARGE):
            assert download(pair.client, addresses.ORIGIN, size, route=pair.http_forward()).complete
        pair.hub.api.request("PATCH", f"/v1/paths/{terrestrial}", {"blocked": True})
        output, _ = told.communicate(timeout=30)
    assert told.returncode == 0
    small, large, news = [json.loads(line) for line in output.splitlines()]
    for flow, size, chosen in ((small, _SMALL, terrestrial), (large, _LARGE, satellite)):
        assert (flow["cause"], flow["size_from"], flow["policy"]) == ("begins", "told", "minfct")
        assert size < flow["size_bytes"] < size + 1_000
        assert flow["chosen"] == chosen
        by_path = {path["path"]: path["completes_ms"] for path in flow["compared"]}
        assert by_path.keys() == {satellite, terrestrial}
        assert min(by_path, key=lambda path: by_path[path]) == chosen
    assert (news["what"], news["path"], news["change"]) == ("path", terrestrial, "blocked")
    assert news["reason"] == "operator"


@pytest.mark.parametrize("transfer", [download, upload])
def test_each_direction_goes_by_a_path_of_its_own(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    options = Options(
        paths=("satellite", "terrestrial"),
        terminal_receives="satellite",
        hub_receives="terrestrial",
    )
    pair = start_pair(SATELLITE, options, terrestrial=TERRESTRIAL)
    assert transfer(pair.client, addresses.ORIGIN, 2_000_000, route=pair.socks5()).complete
    ways = [
        (pair.terminal, "terrestrial", "satellite"),
        (pair.hub, pair.hub_path("satellite"), pair.hub_path("terrestrial")),
    ]
    for node, sends, receives in ways:
        directions = {path["name"]: path["direction"] for path in node.status()["paths"]}
        assert directions == {sends: "both", receives: "receive"}
        # This includes signalling and custody signals.
        assert _sent_in_all(node, sends) > 0
        assert _sent_in_all(node, receives) == 0


def _sent_in_all(node: Node, path: str) -> float:
    classes = ("signalling", "interactive", "normal", "bulk")
    return sum(_sent_bytes(node, path, class_name) for class_name in classes)


def test_a_metered_path_is_empty_until_the_other_dies(start_pair: StartPair) -> None:
    pair = _start(start_pair, meters={"terrestrial": {}})
    terrestrial = pair.hub_path("terrestrial")
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, terrestrial) == 0
    pair.testbed.satlink.block(pair.testbed.terminal.name)
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, terrestrial) > 0
    # Bytes that the hub sends are received by the terminal, and count at both.
    for node, path in ((pair.hub, terrestrial), (pair.terminal, "terrestrial")):
        assert _meter(node, path)["spent_bytes"] > 1_000_000


def test_an_idle_metered_path_has_few_beacons_and_carries_when_it_is_needed(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, meters={"terrestrial": {}})

    def sent() -> list[float]:
        metric = 'underpass_beacons_total{socket="terrestrial",outcome="sent"}'
        return [node.api.metrics()[metric] for node in (pair.terminal, pair.hub)]

    # Its beacons pause from 10 s after its last session on.
    time.sleep(15.0)
    before = sent()
    time.sleep(6.0)
    more = [now - then for now, then in zip(sent(), before, strict=True)]
    # At the usual pace it would be 40 from each end.
    assert max(more) <= 2, more
    pair.testbed.satlink.block(pair.testbed.terminal.name)
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete


def test_a_spent_budget_outlives_a_kill_and_an_operator_adds_to_it(start_pair: StartPair) -> None:
    budget = {"budget_bytes": 2_000_000, "period": "once"}
    pair = _start(start_pair, {"normal": {"metered": "freely"}}, {"terrestrial": budget})
    terrestrial = pair.hub_path("terrestrial")
    assert download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()).complete
    before = _meter(pair.hub, terrestrial)
    assert before["exhausted"]
    # The bundles that were under way are sent whole.
    assert before["spent_bytes"] < 2_500_000
    # It is written down every 2 s.
    time.sleep(4.0)
    pair.hub.process.kill()
    pair.hub.start()
    pair.wait_until_ready()
    assert _meter(pair.hub, terrestrial)["spent_bytes"] >= before["spent_bytes"]
    assert download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, terrestrial) == 0
    pair.hub.api.request("POST", f"/v1/paths/{terrestrial}/budget", {"add_bytes": 100_000_000})
    assert download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()).complete
    assert _sent_bytes(pair.hub, terrestrial) > 0
