"""The access log's and the histograms' records of clients' connections and exchanges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses, ports
from tests.testbed.client.transfer import download, request
from tests.testbed.node import Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_BYTES = 10_000


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair[Testbed]]:
    options = Options(terminal={"log": {"access": {"format": "json"}}})
    with Testbed(NEAR) as testbed:
        yield Pair(testbed, options)


def _file(pair: Pair[Testbed]) -> Path:
    return pair.testbed.dir / f"state-{terminal_node(0)}" / "access.log"


def _ended(pair: Pair[Testbed], before: int) -> dict[str, Any]:
    """Return the one new line after the first `before` lines."""
    lines: list[str] = []

    def written() -> bool:
        lines[:] = _file(pair).read_text().splitlines()[before:]
        return bool(lines)

    pair.terminal.process.wait_until(written)
    assert len(lines) == 1
    line: dict[str, Any] = json.loads(lines[0])
    return line


def _count(pair: Pair[Testbed]) -> int:
    return len(_file(pair).read_text().splitlines())


def test_a_forwarded_exchange_is_noted_with_its_uri_and_answer(pair: Pair[Testbed]) -> None:
    before = _count(pair)
    assert download(pair.client, addresses.ORIGIN, _BYTES, route=pair.http_forward()).complete
    line = _ended(pair, before)
    assert line["method"] == "GET"
    assert line["target"].startswith(f"http://{addresses.ORIGIN}:{ports.HTTP}/")
    assert "?" not in line["target"]
    assert (line["protocol"], line["status"]) == ("HTTP/1.1", 200)
    assert line["from_peer_bytes"] == _BYTES
    # A round trip is 100 ms.
    assert 0.1 <= line["answered_seconds"] <= line["seconds"]
    assert line["failure"] is None


@pytest.mark.parametrize(("way", "protocol"), [("socks5", "SOCKS/5"), ("http_connect", "HTTP/1.1")])
def test_a_connection_is_noted_at_its_end(pair: Pair[Testbed], way: str, protocol: str) -> None:
    before = _count(pair)
    route = getattr(pair, way)()
    assert download(pair.client, addresses.ORIGIN, _BYTES, route=route).complete
    line = _ended(pair, before)
    assert (line["method"], line["protocol"], line["status"]) == ("CONNECT", protocol, 200)
    assert line["target"] == f"{addresses.ORIGIN}:{ports.HTTP}"
    assert line["from_peer_bytes"] > _BYTES
    assert line["client"].startswith(addresses.client(0))


def test_what_fails_is_noted_with_its_reason(pair: Pair[Testbed]) -> None:
    before = _count(pair)
    request(pair.client, "nowhere.test", "/secret?token=1", route=pair.http_forward())
    line = _ended(pair, before)
    assert line["status"] == 502
    assert line["target"] == f"http://nowhere.test:{ports.HTTP}/secret"
    assert line["failure"].startswith("nowhere.test does not resolve: ")
    # The hub has to report the failure first.
    assert line["seconds"] >= 0.1


def test_the_histograms_count_the_same(pair: Pair[Testbed]) -> None:
    download(pair.client, addresses.ORIGIN, _BYTES, route=pair.http_forward())
    lines = [json.loads(line) for line in _file(pair).read_text().splitlines()]
    metrics = pair.terminal.api.metrics()
    answered = [line for line in lines if line["answered_seconds"] is not None]
    assert metrics["underpass_edge_answered_seconds_count"] == len(answered)
    took = [
        value
        for name, value in metrics.items()
        if name.startswith("underpass_edge_took_seconds_count")
    ]
    assert sum(took) == len(lines)


def test_only_the_nodes_user_may_read_it(pair: Pair[Testbed]) -> None:
    assert _file(pair).stat().st_mode & 0o777 == 0o600
