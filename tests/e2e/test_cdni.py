"""Sizes of objects from CDNI metadata: they decide the path, and no document does harm."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from tests.e2e.conftest import SATELLITE, TERRESTRIAL, StartPair, classes_with
from tests.testbed import addresses
from tests.testbed.node import HTTP_PORT, Node, Options, Pair, PathName
from tests.testbed.process import Process
from tests.testbed.topology import Testbed, listens

pytestmark = pytest.mark.node

_PATHS: tuple[PathName, ...] = ("satellite", "terrestrial")
# A large object is complete first by the satellite; others begin on the terrestrial path.
_LARGE = 2_000_000
_PORT, _OTHER_PORT = 8470, 8471


def _start(start_pair: StartPair, *, asks: bool = True) -> Pair[Testbed]:
    """Start a pair with both paths, whose hub asks a source at the origin's address."""
    classes = classes_with({"normal": {"policy": "minfct"}})
    cdni = {"cdni": {"url": f"http://{addresses.ORIGIN}:{_PORT}/index"}} if asks else {}
    options = Options(paths=_PATHS, terminal={"class": classes}, hub={"class": classes, **cdni})
    pair = start_pair(SATELLITE, options, terrestrial=TERRESTRIAL)
    pair.hub.process.wait_until(partial(_carries_everywhere, pair.hub))
    return pair


def _carries_everywhere(node: Node) -> bool:
    def normal(session: Mapping[str, Any]) -> bool:
        return bool(session["carrying"] and session["class"] == "normal")

    return all(any(map(normal, path["sessions"])) for path in node.status()["paths"])


def _serve(testbed: Testbed, documents: Mapping[str, object], port: int = _PORT) -> Process:
    """Serve documents by their names, with Python's own HTTP server."""
    folder = testbed.dir / f"cdni-{port}"
    folder.mkdir()
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    argv = [sys.executable, "-u", "-m", "http.server", str(port), "--directory", str(folder)]
    server = testbed.start(f"cdni-{port}", argv, testbed.origin)
    server.wait_until(lambda: listens(testbed.origin, port))
    return server


def _sized(size_bytes: int) -> dict[str, object]:
    value = {"bytes": size_bytes}
    return {
        "metadata": [
            {"generic-metadata-type": "MI.Cache", "generic-metadata-value": {}},
            {
                "generic-metadata-type": "underpass.ObjectSize",
                "generic-metadata-value": value,
                "mandatory-to-enforce": False,
            },
        ]
    }


def _index(host_metadata: object) -> dict[str, object]:
    return {"hosts": [{"host": addresses.ORIGIN, "host-metadata": host_metadata}]}


def _path(pattern: str, metadata: object) -> dict[str, object]:
    matched = {"pattern": pattern, "ignore-query-string": True}
    return {"path-pattern": matched, "path-metadata": metadata}


def _cdni(node: Node) -> dict[str, Any]:
    found = node.status()["cdni"]
    assert isinstance(found, dict)
    return found


def _keeps(node: Node, documents: int) -> bool:
    return bool(_cdni(node)["documents"] == documents)


def _fetch(pair: Pair[Testbed], size: int) -> None:
    """Get an object of this size by the terminal's proxy, in an answer without a length."""
    proxy = pair.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    proxy.settimeout(60)
    proxy.connect((addresses.terminal_lan(0), HTTP_PORT))
    connection = http.client.HTTPConnection(addresses.ORIGIN)
    connection.sock = proxy
    with contextlib.closing(connection):
        connection.request("GET", f"http://{addresses.ORIGIN}/bytes/{size}?seed=1&chunked=1")
        answer = connection.getresponse()
        assert answer.headers["Content-Length"] is None
        assert len(answer.read()) == size


def _ask(pair: Pair[Testbed]) -> None:
    """Make the hub look for an object; flows of unknown size are then expected to be as small."""
    _fetch(pair, 500)


def _by_path(pair: Pair[Testbed], size: int = _LARGE) -> tuple[float, float]:
    """Return the bytes by satellite and terrestrially of an answer without a length."""

    def sent() -> list[float]:
        metrics = pair.hub.api.metrics()
        names = [pair.hub_path(path) for path in _PATHS]
        name = "underpass_path_sent_bundle_bytes_total"
        return [metrics.get(f'{name}{{path="{path}",class="normal"}}', 0.0) for path in names]

    before = sent()
    _fetch(pair, size)
    satellite, terrestrial = (late - early for early, late in zip(before, sent(), strict=True))
    return satellite, terrestrial


def test_an_answer_without_a_length_goes_by_the_path_for_the_size_that_its_provider_tells(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair)
    host = {"paths": [_path("/bytes/*", {"href": "/bytes"})]}
    objects = {"paths": [_path(f"/bytes/{_LARGE}", _sized(_LARGE))]}
    documents = {"index": _index({"href": "/host"}), "host": host, "bytes": objects}
    server = _serve(pair.testbed, documents)
    # A document is fetched when it is first needed, and nothing waits for it.
    for count in (1, 2, 3):
        _ask(pair)
        pair.hub.process.wait_until(partial(_keeps, pair.hub, count))
    # By now the hub has learned that this host's objects are small.
    by_satellite, by_terrestrial = _by_path(pair)
    assert by_terrestrial < _LARGE / 100 < _LARGE < by_satellite
    found = _cdni(pair.hub)
    assert found["known"] == 1
    assert found["fetched"] == 3
    assert found["error"] is None
    labels = 'outcome="known"'
    assert pair.hub.api.metrics()[f"underpass_cdni_requests_total{{{labels}}}"] == 1
    assert server.log_tail(100).count("GET ") == 3


def test_without_metadata_an_answer_without_a_length_goes_by_the_path_of_little_delay(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, asks=False)
    _ask(pair)
    satellite, terrestrial = _by_path(pair, 500)
    assert terrestrial > satellite
    assert pair.hub.status()["cdni"] is None


@pytest.mark.parametrize("kind", ["absent", "loop", "huge", "elsewhere", "nonsense"])
def test_no_document_holds_up_a_flow_or_has_the_hub_ask_others(
    start_pair: StartPair, kind: str
) -> None:
    pair = _start(start_pair)
    elsewhere = f"http://{addresses.ORIGIN}:{_OTHER_PORT}/index"
    other = _serve(pair.testbed, {"index": _sized(1)}, _OTHER_PORT)
    loop = {"paths": [_path("*", {"href": "/loop"})]}
    documents: dict[str, dict[str, object]] = {
        "absent": {},
        "loop": {"index": _index({"href": "/loop"}), "loop": loop},
        "huge": {"index": _index(_sized(1 << 63))},
        "elsewhere": {"index": _index({"href": elsewhere})},
        "nonsense": {"index": {"hosts": [{"host": 7}]}},
    }
    _serve(pair.testbed, documents[kind])
    for _ in range(3):
        _ask(pair)
        pair.hub.process.wait_until(
            lambda: _cdni(pair.hub)["fetched"] + _cdni(pair.hub)["failed"] > 0
        )
    _ask(pair)
    found = _cdni(pair.hub)
    assert found["known"] == 0
    assert (found["error"] is not None) == (kind in ("absent", "nonsense"))
    assert "GET " not in other.log_tail(100)
    assert found["documents"] <= 2
