"""One trace of an exchange across terminal, hub and control service, and collectors that fail."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import NEAR, StartPair
from tests.testbed import addresses, ports
from tests.testbed.client.transfer import download, request
from tests.testbed.collector import URL, Collector, Span
from tests.testbed.control import BEAM, REPORTS, Control
from tests.testbed.node import Node, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_BYTES = 200_000
_TERMINAL, _HUB, _CONTROL = "underpass-terminal", "underpass-hub", "underpass-control"
_ALL = {"traces": {"url": URL, "ratio": 1.0, "most_per_s": 1000}}
_TRACE, _SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@dataclass
class _World:
    pair: Pair[Testbed]
    collector: Collector

    def trace_of(self, root: str, *names: str, timeout_s: float = 60.0) -> dict[str, Span]:
        """Return the spans of a root's trace by name, once it has spans of these names."""

        def of(spans: list[Span]) -> list[Span]:
            [trace] = {span.trace for span in spans if span.id == root}
            return [span for span in spans if span.trace == trace]

        def is_there(spans: list[Span]) -> bool:
            return {span.name for span in of(spans)} >= {"exchange", *names}

        found = of(self.collector.wait_for(is_there, timeout_s=timeout_s))
        return {span.name: span for span in found}

    def new_root(self, before: set[str]) -> Span:
        """Return the root span of the one exchange that has ended since."""

        def roots(spans: list[Span]) -> list[Span]:
            return [one for one in spans if one.name == "exchange" and one.id not in before]

        [root] = roots(self.collector.wait_for(lambda spans: len(roots(spans)) > 0))
        return root

    def known(self) -> set[str]:
        """Return the known spans."""
        return {span.id for span in self.collector.spans()}


@pytest.fixture(scope="module")
def world() -> Iterator[_World]:
    with Testbed(NEAR) as testbed:
        environment = {"UNDERPASS_TRACES": URL, "UNDERPASS_TRACES_RATIO": "0"}
        control = Control(testbed, environment=environment)
        control.register()
        # Without another terminal, no demand would move a share of the beam.
        control.call("PUT", "/v1/terminals/99", {"beam": BEAM, "name": "another"})
        with Collector(testbed.terminal.node, testbed.hub, control.namespace) as collector:
            options = Options(
                terminal={**REPORTS, "traces": {**_ALL["traces"], "client_context": True}},
                hub={**control.hub_config, "traces": {"url": URL, "ratio": 0.0}},
            )
            yield _World(Pair(testbed, options), collector)


def _fetch(world: _World, size: int = _BYTES) -> Span:
    before = world.known()
    pair = world.pair
    assert download(pair.client, addresses.ORIGIN, size, route=pair.socks5()).complete
    return world.new_root(before)


def test_one_trace_has_the_exchange_at_terminal_hub_and_service(world: _World) -> None:
    root = _fetch(world)
    spans = world.trace_of(
        root.id, "queue", "hop", "first byte", "stream", "connect", "answer", "report",
        "POST /v1/reports",
    )  # fmt: skip
    services = {span.service for span in spans.values()}
    assert services == {_TERMINAL, _HUB, _CONTROL}
    assert root.parent == ""
    for name in ("queue", "hop", "first byte", "stream"):
        assert spans[name].parent == root.id, name
    for name in ("resolve", "connect", "answer", "report"):
        assert spans[name].parent == spans["stream"].id, name
    assert spans["POST /v1/reports"].parent == spans["report"].id
    # All clocks are this machine's, so a span does not begin before its cause.
    one_way_ns = int(NEAR.forward.delay_ms * 1e6)
    assert spans["queue"].end_ns == spans["hop"].start_ns
    assert spans["stream"].start_ns >= spans["hop"].start_ns + one_way_ns
    assert spans["hop"].end_ns >= spans["hop"].start_ns + 2 * one_way_ns
    assert spans["connect"].end_ns == spans["answer"].start_ns
    assert root.end_ns >= spans["first byte"].end_ns >= spans["answer"].end_ns + one_way_ns
    assert root.attributes["underpass.bytes_received"] >= _BYTES
    assert root.attributes["server.address"] == addresses.ORIGIN
    assert root.attributes["underpass.protocol"] == "socks5"
    assert spans["stream"].attributes["underpass.peer"] == terminal_node(0)
    assert spans["stream"].attributes["network.peer.address"] == addresses.ORIGIN
    assert root.error == spans["stream"].error == ""


def test_a_plan_follows_from_the_report_in_the_same_trace(world: _World) -> None:
    # Plans are made anew while demands change, so some exchange's report causes one: each exchange
    # demands more than those before it.
    for attempt in range(6):
        root = _fetch(world, _BYTES << 2 * attempt)
        try:
            spans = world.trace_of(root.id, "plan", "push", timeout_s=10.0)
        except TimeoutError:
            assert attempt < 5, "no plan has followed from a traced report"
        else:
            break
    assert spans["plan"].service == spans["push"].service == _CONTROL
    assert spans["plan"].parent == spans["POST /v1/reports"].id
    assert spans["push"].parent == spans["plan"].id
    assert spans["push"].attributes["underpass.plan"] == spans["plan"].attributes["underpass.plan"]


def test_a_blockage_that_an_exchange_meets_is_in_its_span(world: _World) -> None:
    before = world.known()
    pair = world.pair
    pair.terminal.api.block()
    try:
        # The connection is accepted at once, and its request waits.
        transfer = download(
            pair.client, addresses.ORIGIN, 1_000, route=pair.socks5(), deadline_s=2.0, reset=True
        )
        assert not transfer.complete
    finally:
        pair.terminal.api.unblock()
    root = world.new_root(before)
    assert root.events[0] == "blocked"
    assert root.error != ""
    names = {span.name for span in world.collector.spans() if span.parent == root.id}
    assert "first byte" not in names


def test_a_failed_dial_is_an_error_at_both_ends(world: _World) -> None:
    before = world.known()
    pair = world.pair
    transfer = download(
        pair.client, addresses.ORIGIN, 1, port=ports.CLOSED, route=pair.http_forward()
    )
    assert not transfer.complete
    root = world.new_root(before)
    spans = world.trace_of(root.id, "stream")
    assert "refused" in root.error
    assert "refused" in spans["stream"].error
    assert "connect" not in spans


def test_a_clients_own_trace_is_gone_along_with_where_that_is_configured(world: _World) -> None:
    def ask(flags: str) -> None:
        fields = f"traceparent: 00-{_TRACE}-{_SPAN}-{flags}\r\n"
        route = world.pair.http_forward()
        status, _ = request(
            world.pair.client, addresses.ORIGIN, "/bytes/10?seed=1", route=route, fields=fields
        )
        assert status == 200

    before = world.known()
    ask("01")
    root = world.new_root(before)
    assert (root.trace, root.parent) == (_TRACE, _SPAN)
    ask("00")
    other = _fetch(world)
    assert other.trace != _TRACE, "what a client does not sample is not traced"


@pytest.mark.parametrize("answer", [None, 500, "away"])
def test_a_collector_that_hangs_fails_or_is_away_hurts_nothing(
    start_pair: StartPair, answer: int | str | None
) -> None:
    settings = {"traces": {**_ALL["traces"], "timeout_s": 1}}
    pair = start_pair(options=Options(terminal=settings, hub=settings))
    nodes = [pair.testbed.terminal.node, pair.testbed.hub]
    status = answer if isinstance(answer, int) else None
    collector: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if answer != "away":
        collector = Collector(*nodes, answer=status)
    with collector:
        for seed in range(20):
            transfer = download(
                pair.client, addresses.ORIGIN, _BYTES, route=pair.socks5(), seed=seed
            )
            assert transfer.complete
        for node in (pair.terminal, pair.hub):
            node.process.wait_until(functools.partial(_has_failed, node))
            assert node.process.log_path.read_text().count("takes no spans") == 1
        began = time.monotonic()
        assert pair.terminal.process.stop() == 0
        assert time.monotonic() - began < 8.0


def _has_failed(node: Node) -> bool:
    """Tell whether the collector has not taken spans."""
    return node.api.metrics()['underpass_trace_spans_total{outcome="failed"}'] > 0


def test_without_a_collector_no_trace_travels(start_pair: StartPair) -> None:
    pair = start_pair(options=Options(hub=_ALL))
    with Collector(pair.testbed.hub) as collector:
        assert download(pair.client, addresses.ORIGIN, _BYTES, route=pair.socks5()).complete
        time.sleep(2.5)
        assert collector.spans() == []
    assert not [name for name in pair.terminal.api.metrics() if "trace_spans" in name]


def test_a_peer_has_no_more_traced_than_this_nodes_limit(start_pair: StartPair) -> None:
    few = {"traces": {"url": URL, "ratio": 0.0, "most_per_s": 0.2}}
    pair = start_pair(options=Options(terminal=_ALL, hub=few))
    with Collector(pair.testbed.terminal.node, pair.testbed.hub) as collector:
        for seed in range(30):
            assert download(
                pair.client, addresses.ORIGIN, 1_000, route=pair.socks5(), seed=seed
            ).complete

        def exchanges(spans: list[Span]) -> int:
            return len([span for span in spans if span.name == "exchange"])

        spans = collector.wait_for(lambda spans: exchanges(spans) == 30)
        streams = [span for span in spans if span.name == "stream"]
        assert 1 <= len(streams) <= 5
