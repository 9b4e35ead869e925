"""A vehicle drives through a road tunnel: every part, from receiver to ledger, is real."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.drives.island import ISLAND_OSM
from tests.drives.synthetic import passage_of
from tests.testbed import addresses, vehicle
from tests.testbed.client.transfer import Transfer, download
from tests.testbed.control import REPORTS, Control
from tests.testbed.following import Event, Follower
from tests.testbed.narration import ms
from tests.testbed.node import HUB_NODE, Options, Pair, terminal_node
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.topology import Testbed
from tests.testbed.vehicle import Vehicle

_MISSING = vehicle.missing()
pytestmark = [
    pytest.mark.node,
    # The drive takes more than a minute, and the ledger some more time.
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING or ""),
]

_TERMINALS = 4
_BEAM_BPS = 8_000_000
_FAIR_BPS = _BEAM_BPS // _TERMINALS
_KINDS = ("blockages", "plans", "acknowledgements", "ledger", "links")
# The members of a link's state that explain its rate.
_EXPLAINING = (
    "time",
    "state",
    "plan",
    "rate_bps",
    "sent_bytes",
    "backlogged_bytes",
    "capacity_bps",
    "capacity_reason",
)
_ENDLESS = 1_000_000_000_000
# Debts that remain after the drive go into the next plans.
_SETTLES_WITHIN_S = 120.0


@dataclass
class Passage:
    """The results of the drive; times in ms since the Unix epoch."""

    entry_ms: int = 0
    exit_ms: int = 0
    begin_ms: int = 0
    events: list[Event] = field(default_factory=list)
    # By link and version: each terminal's line, by node number.
    plans: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = field(default_factory=dict)
    flows: list[Transfer] = field(default_factory=list)
    # What each terminal is owed in the end, where that is not nothing; None: not asked.
    balances: dict[int, int] | None = None

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind."""
        return [event.data for event in self.events if event.kind == kind]

    def rate_bps(self, terminal: int, from_ms: int, to_ms: int) -> float:
        """Return the rate that a terminal's client got in a period."""
        flow = self.flows[terminal]
        early, late = ((at - self.begin_ms) / 1000 for at in (from_ms, to_ms))
        return (flow.bytes_at(late) - flow.bytes_at(early)) * 8000 / (to_ms - from_ms)

    def said(self, terminal: int, from_ms: int, to_ms: int) -> list[dict[str, Any]]:
        """Return what the hub reported in a period of a terminal's forward link."""
        return [
            {name: one.get(name) for name in _EXPLAINING}
            for told in self.of("links")
            for one in told["links"]
            if (one["terminal"], one["link"]) == (terminal_node(terminal), "forward")
            and from_ms <= ms(one["time"]) <= to_ms
        ]


@pytest.fixture(scope="module")
def passage() -> Iterator[Passage]:
    """Drive once; every test below is about that drive."""
    with Testbed(PAPER_BEAM, terminals=_TERMINALS, shared=True) as testbed:
        control = Control(testbed, maps=[ISLAND_OSM])
        control.register()
        with Follower(control, _KINDS) as follower:
            pair = Pair(
                testbed,
                Options(
                    return_rate_bps=_FAIR_BPS,
                    terminal=REPORTS,
                    only={0: {"positions": vehicle.POSITIONS}},
                    hub=control.hub_config,
                ),
            )
            yield _drive(testbed, control, follower, pair)


def _drive(testbed: Testbed, control: Control, follower: Follower, pair: Pair[Testbed]) -> Passage:
    found, stop = Passage(begin_ms=round(time.time() * 1000)), threading.Event()
    flows: dict[int, Transfer] = {}

    def flow(index: int) -> None:
        client = testbed.terminals[index].client
        route = pair.http_forward(index)
        flows[index] = download(
            client, addresses.ORIGIN, _ENDLESS, route=route, seed=index, deadline_s=600, stop=stop
        )

    threads = [threading.Thread(target=flow, args=(index,)) for index in range(_TERMINALS)]
    for thread in threads:
        thread.start()
    drive = passage_of("Ridge Road", lead_m=800.0, tail_m=250.0)
    driven = Vehicle(testbed, testbed.terminal, drive)
    [(found.entry_ms, found.exit_ms)] = driven.blockages_ms
    latest_s = driven.end_ms / 1000 + _SETTLES_WITHIN_S
    while time.time() < latest_s:
        event = follower.next(0.5)
        if event:
            _take(found, control, event)
        if time.time() > driven.end_ms / 1000 and _settled_ms(found) >= driven.end_ms:
            found.balances = control.balances("forward")
            if _is_square(found):
                break
    stop.set()
    for thread in threads:
        thread.join()
    found.flows = [flows[index] for index in range(_TERMINALS)]
    return found


def _take(found: Passage, control: Control, event: Event) -> None:
    found.events.append(event)
    if event.kind == "plans":
        key = event.data["link"], event.data["plan"]
        lines = control.plan_lines(*key)
        # The first ones may have been made before all terminals were registered.
        if len(lines) == _TERMINALS:
            found.plans[key] = lines


def _settled_ms(found: Passage) -> int:
    return max((ms(one["end"]) for one in found.of("ledger")), default=0)


def _moved_bits(found: Passage) -> int:
    return sum(one["moved_bits"] for one in found.of("ledger") if one["link"] == "forward")


def _is_square(found: Passage) -> bool:
    """Tell whether the debts are a small part of the amounts that changed hands."""
    balances = found.balances
    return balances is not None and all(
        abs(bits) < _moved_bits(found) / 20 for bits in balances.values()
    )


def test_the_tunnel_is_predicted_before_its_portal(passage: Passage) -> None:
    told: list[tuple[float, dict[str, Any]]] = [
        (event.came_s * 1000, one)
        for event in passage.events
        if event.kind == "blockages"
        for one in event.data["blockages"]
        if one["state"] == "predicted"
    ]

    def last_told(before_ms: int) -> dict[str, Any]:
        return [one for came_ms, one in told if came_ms < passage.entry_ms - before_ms][-1]

    # Some ten seconds before the portal a road turns off, which one vehicle in nine takes.
    for before_ms, confidence in ((13_000, 0.8), (5_000, 0.9)):
        last = last_told(before_ms)
        assert last["terminal"] == terminal_node(0)
        assert last["confidence"] > confidence
        assert abs(ms(last["entry"]) - passage.entry_ms) < 3_000
        assert abs(ms(last["exit"]) - passage.exit_ms) < 5_000


def test_the_others_lend_before_the_portal_and_are_repaid_behind_it(passage: Passage) -> None:
    first = terminal_node(0)
    # Nobody lends on the return link: downloads leave it nearly idle.
    lines = next(
        lines
        for (link, _), lines in passage.plans.items()
        if link == "forward" and any(one["lent_bits"] for one in lines[first + 1])
    )
    borrowed = sum(one["borrowed_bits"] for one in lines[first])
    lent = [sum(one["lent_bits"] for one in lines[first + n]) for n in (1, 2, 3)]
    repaid = [sum(one["repaid_bits"] for one in lines[first + n]) for n in (1, 2, 3)]
    # Shares are whole bits, so a segment may have one fewer than there are terminals left over.
    assert borrowed == pytest.approx(sum(lent), abs=_TERMINALS - 1)
    assert sum(repaid) > 0.9 * borrowed
    states = [one["state"] for one in lines[first]]
    assert states.index("borrowing") < states.index("blocked")


def test_hub_and_terminals_take_over_every_plan_that_is_not_replaced_at_once(
    passage: Passage,
) -> None:
    taken: dict[tuple[str, int], set[int]] = {}
    for one in passage.of("acknowledgements"):
        nodes = taken.setdefault((one["link"], one["plan"]), set())
        nodes |= {said["node"] for said in one["acknowledgements"]}
    terminals = {terminal_node(n) for n in range(_TERMINALS)}
    for link, concerned in (("forward", {HUB_NODE}), ("return", terminals)):
        followed = [nodes for (of, _), nodes in taken.items() if of == link]
        assert set.union(*followed) == concerned
        assert len(followed) >= 3


def test_what_is_sent_follows_the_plan(passage: Passage) -> None:
    before = passage.entry_ms - 20_000, passage.entry_ms - 2_000
    inside = passage.entry_ms + 2_000, passage.exit_ms - 1_000
    assert passage.rate_bps(0, *before) > 1.1 * _FAIR_BPS
    assert passage.rate_bps(0, *inside) == 0
    for lender in (1, 2, 3):
        assert passage.rate_bps(lender, *before) < 0.95 * _FAIR_BPS
        got_bps = passage.rate_bps(lender, *inside)
        assert got_bps > 1.15 * _FAIR_BPS, passage.said(lender, *inside)


def test_no_byte_is_lost(passage: Passage) -> None:
    # Every byte was checked on arrival; the test itself ends the downloads.
    for flow in passage.flows:
        assert flow.error == "TimeoutError: the run's time is over"


def test_the_ledger_is_square_at_the_end(passage: Passage) -> None:
    assert _moved_bits(passage) > 20_000_000
    assert passage.balances is not None
    assert sum(passage.balances.values()) == 0
    assert _is_square(passage), passage.balances
