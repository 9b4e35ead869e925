"""Four nodes of a contact plan: bundles wait for contacts, and move when a link is blocked.

Node 1 sends to node 4. It has sessions with the relays 2 and 3, and these with node 4.
"""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.applications import applications, bp
from tests.testbed.loopback import Loopback
from tests.testbed.node import ApiError, Node
from tests.testbed.programs import built

pytestmark = pytest.mark.node

_SOURCE, _UPPER, _LOWER, _END = 1, 2, 3, 4
_NODES = (_SOURCE, _UPPER, _LOWER, _END)
_ENDPOINT = f"ipn:{_END}.9"
_FIRST_PORT = 4600


def _contact(
    sender: int, receiver: int, start_s: float, end_s: float, owlt_ms: int = 1
) -> dict[str, int]:
    return {
        "from": sender,
        "to": receiver,
        "start_ms": round(start_s * 1_000),
        "end_ms": round(end_s * 1_000),
        "rate_bytes_per_s": 1_000_000,
        "owlt_ms": owlt_ms,
    }


def _always() -> list[dict[str, int]]:
    """Return a plan in which all contacts last; the lower way takes longer."""
    start, end = time.time() - 60, time.time() + 3_600
    contacts = []
    for one, other, owlt_ms in (
        (_SOURCE, _UPPER, 1),
        (_UPPER, _END, 1),
        (_SOURCE, _LOWER, 200),
        (_LOWER, _END, 200),
    ):
        contacts.append(_contact(one, other, start, end, owlt_ms))
        contacts.append(_contact(other, one, start, end, owlt_ms))
    return contacts


class Diamond:
    """The four nodes on one loopback, each following the plan in its folder."""

    def __init__(self, bed: Loopback, contacts: Sequence[dict[str, int]]) -> None:
        self._bed = bed
        self.plan = bed.dir / "contacts.json"
        self.write(contacts)
        self.nodes = {node: self._start(node) for node in _NODES}
        for node, neighbours in ((_UPPER, 2), (_LOWER, 2), (_END, 2), (_SOURCE, 2)):
            ready = functools.partial(self.nodes[node].carries, neighbours)
            self.nodes[node].process.wait_until(ready)

    def write(self, contacts: Sequence[dict[str, int]]) -> None:
        whole = self.plan.with_suffix(".new")
        whole.write_text(json.dumps({"contacts": list(contacts)}))
        whole.rename(self.plan)

    def _start(self, node: int) -> Node:
        name = f"node{node}"

        def path(neighbour: int) -> dict[str, object]:
            remote = f"127.0.0.1:{_FIRST_PORT + neighbour}"
            return {"name": f"to-{neighbour}", "neighbour": neighbour, "remote": remote}

        def listening(*neighbours: int) -> dict[str, object]:
            address = f"127.0.0.1:{_FIRST_PORT + node}"
            return {
                "listener": [{"name": "in", "listen": address}],
                "terminal": [{"node": neighbour} for neighbour in neighbours],
            }

        ways: dict[int, dict[str, object]] = {
            _SOURCE: {"path": [path(_UPPER), path(_LOWER)]},
            _UPPER: {"path": [path(_END)], **listening(_SOURCE)},
            _LOWER: {"path": [path(_END)], **listening(_SOURCE)},
            _END: listening(_UPPER, _LOWER),
        }
        config = {
            "node": {
                "number": node,
                "role": "relay",
                "state_dir": self._bed.dir / f"state-{name}",
                "drain_s": 1,
            },
            "tls": {"plain": True},
            "routing": {"contact_plan": self.plan},
            **ways[node],
            **applications(self._bed.dir, name),
        }
        return Node(self._bed, name, self._bed.hub, config)

    def send(self, count: int, *, start: int = 0) -> None:
        for number in range(start, start + count):
            argv = ("send", _ENDPOINT, "-", "--lifetime", "600")
            bp(self.nodes[_SOURCE], *argv, stdin=b"bundle %d" % number)

    def received(self, count: int, timeout_s: float = 60.0) -> set[bytes]:
        folder = Path(str(self._bed.dir / f"received-{time.monotonic_ns()}"))
        folder.mkdir()
        node = self.nodes[_END]
        bp(
            node,
            *("receive", "--service", "9", "--count", str(count), "--folder", str(folder)),
            timeout_s=timeout_s,
        )
        return {file.read_bytes() for file in folder.iterdir()}

    def via(self, node: int, to: int) -> Any:
        return self.nodes[node].api.get(f"/v1/routes/{to}")["via"]

    def waiting(self, node: int) -> dict[int, int]:
        """Return how many application bundles wait at a node, by neighbour."""
        waiting: dict[int, int] = {}
        for held in self.nodes[node].api.get("/v1/custody?limit=1000")["held"]:
            if held["destination"] == _ENDPOINT:
                waiting[held["neighbour"]] = waiting.get(held["neighbour"], 0) + 1
        return waiting


@pytest.fixture
def bed() -> Iterator[Loopback]:
    with ExitStack() as stack:
        yield stack.enter_context(Loopback())


def test_bundles_go_by_the_plan_and_move_when_a_link_is_blocked_and_come_back(
    bed: Loopback,
) -> None:
    diamond = Diamond(bed, _always())
    source = diamond.nodes[_SOURCE]
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _UPPER)
    diamond.send(3)
    assert diamond.received(3) == {b"bundle 0", b"bundle 1", b"bundle 2"}

    # A sensed or ordered blockage is a change of the plan.
    source.api.request("POST", "/v1/link/block?path=to-2")
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _LOWER)
    diamond.send(2, start=3)
    assert diamond.received(2) == {b"bundle 3", b"bundle 4"}
    route = source.api.get(f"/v1/routes/{_END}")
    assert route["by"] == "contact-plan"
    assert [contact["from"] for contact in route["contacts"]] == [_SOURCE, _LOWER]

    source.api.request("POST", "/v1/link/unblock?path=to-2")
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _UPPER)

    # So is a predicted one.
    source.api.plan_blockages([(time.time() + 1, 600.0)], "to-2")
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _LOWER)
    diamond.send(1, start=5)
    assert diamond.received(1) == {b"bundle 5"}


def _answers(node: Node) -> bool:
    try:
        return bool(node.status())
    except OSError:
        return False


def test_a_relay_that_dies_is_passed_by_and_nothing_is_lost(bed: Loopback) -> None:
    diamond = Diamond(bed, _always())
    source = diamond.nodes[_SOURCE]
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _UPPER)
    # The way on from the upper relay is held: bundles wait there in custody.
    diamond.nodes[_UPPER].api.request("POST", "/v1/link/block?path=to-4")
    source.api.request("POST", "/v1/link/block?path=to-3")
    diamond.send(4)
    upper = diamond.nodes[_UPPER]
    upper.process.wait_until(lambda: sum(diamond.waiting(_UPPER).values()) == 4)
    source.api.request("POST", "/v1/link/unblock?path=to-3")
    upper.process.kill()
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _LOWER)
    diamond.send(2, start=4)
    assert diamond.received(2) == {b"bundle 4", b"bundle 5"}
    # The bundles in its custody are on its disk, and are forwarded when it is back.
    upper.start()
    upper.process.wait_until(functools.partial(_answers, upper))
    # The operator's hold outlasts the restart, too.
    upper.api.request("POST", "/v1/link/unblock?path=to-4")
    assert diamond.received(4) == {b"bundle %d" % number for number in range(4)}


def test_a_bundle_waits_for_a_contact_that_is_to_come_and_is_taken_back_when_one_ends(
    bed: Loopback,
) -> None:
    diamond = Diamond(bed, _always())
    source = diamond.nodes[_SOURCE]
    now = time.time()
    others = [contact for contact in _always() if contact["from"] != _SOURCE]
    # First to the upper relay, which cannot go on; then to the lower one.
    diamond.nodes[_UPPER].api.request("POST", "/v1/link/block?path=to-4")
    contacts = [
        _contact(_SOURCE, _UPPER, now - 10, now + 8),
        _contact(_SOURCE, _LOWER, now + 12, now + 3_600),
    ]
    diamond.write([*contacts, *others])
    changes = json.loads(source.api.request("POST", "/v1/reload"))["changes"]
    assert changes == [f"contact plan: {len(contacts) + len(others)} contacts"]
    assert diamond.via(_SOURCE, _END) == _UPPER
    # The link is held: these bundles stay here, and their contact ends.
    source.api.request("POST", "/v1/link/block?path=to-2")
    diamond.send(2)
    assert sum(diamond.waiting(_SOURCE).values()) == 2
    source.process.wait_until(lambda: diamond.waiting(_SOURCE) == {_LOWER: 2})
    blocked = {path["name"]: path["link"]["blocked_by"] for path in source.status()["paths"]}
    if time.time() < now + 11:
        assert blocked["to-3"] == "contact"
    assert diamond.received(2) == {b"bundle 0", b"bundle 1"}
    assert time.time() >= now + 12
    plan = source.status()["contact_plan"]
    assert (plan["contacts"], plan["nodes"]) == (len(contacts) + len(others), 3)
    opened = {each["neighbour"]: each["open"] for each in plan["neighbours"]}
    assert opened == {_UPPER: False, _LOWER: True}
    assert source.api.metrics()['underpass_contact_open{neighbour="3"}'] == 1


def test_a_plan_that_is_wrong_is_told_and_changes_nothing(bed: Loopback) -> None:
    diamond = Diamond(bed, _always())
    source = diamond.nodes[_SOURCE]
    source.process.wait_until(lambda: diamond.via(_SOURCE, _END) == _UPPER)
    diamond.write([{**_contact(_SOURCE, _UPPER, 5, 9), "end_ms": 5_000}])
    with pytest.raises(ApiError, match=r"contacts\.json: contact 1: it ends before it begins"):
        source.api.request("POST", "/v1/reload")
    assert diamond.via(_SOURCE, _END) == _UPPER
    argv = [built("underpass"), "check-config", "--config", str(source.config_path)]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert checked.returncode != 0
    assert "it ends before it begins" in checked.stderr
    argv = [built("underpass"), "route", str(_END), "--socket", str(source.api.path)]
    explained = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert explained.startswith("ipn:4.0 by the contact plan, next ipn:2.0\n  1 -> 2: ")
