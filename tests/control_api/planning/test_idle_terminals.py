"""Terminals that send nothing leave the beam to those that do."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from underpass_control.planning.beam_planner import BeamPlanner, Terms, moved
from underpass_control.planning.knowledge import Knowledge
from underpass_control.planning.wire import WirePlan
from underpass_control.storage import links
from underpass_control.storage.links import LinkState

from dama.planner import CapacityStep, Link, Plan, plan
from dama.prediction import Blockage
from tests.control_api.test_demand import START_MS
from tests.control_api.test_demand import state as reported

BEAM_BPS = 10_000_000
LINK = Link.RETURN
IDLE, BUSY = range(1, 201), 201
# What an idle terminal sends: a report each 10 s.
REPORT_BYTES, EVERY_MS = 700, 10_000


def state(node: int, at_ms: int, sent_bytes: int, backlogged_bytes: int = 0) -> LinkState:
    of = {"terminal": node, "node": node, "streams": 0}
    return reported(at_ms / 1000, sent_bytes, backlogged_bytes, **of)


class Beam:
    """Control's knowledge of the beam, and the plans that it makes from it."""

    def __init__(self) -> None:
        self.knowledge = Knowledge("beam")
        self.knowledge.set_nodes(frozenset((*IDLE, BUSY)))
        self.planner = BeamPlanner("beam")
        terms = {node: Terms(1, 0, None, 1) for node in (*IDLE, BUSY)}
        self.planner.set_terms(LINK, (CapacityStep(0, BEAM_BPS),), terms, 300)

    def hear(self, states: Iterable[LinkState]) -> None:
        for change in links.changes_of(states):
            self.knowledge.take("links", json.loads(json.dumps(change)))

    def hear_idle(self, until_ms: int) -> None:
        for number, at_ms in enumerate(range(EVERY_MS, until_ms + 1, EVERY_MS)):
            self.hear(state(node, at_ms, number * REPORT_BYTES) for node in IDLE)

    def upload(self, at_ms: int) -> None:
        self.hear([state(BUSY, at_ms, 0), state(BUSY, at_ms + 1_000, 50_000, 500_000)])

    def plan(self, at_ms: int) -> Plan:
        now_ms = START_MS + at_ms
        self.knowledge.tell_demands(self.planner, now_ms)
        request = self.planner.request(LINK, now_ms, 300, {})
        made = plan(request)
        self.planner.taken(request, made)
        return made


def rates(made: Plan) -> dict[int, int]:
    """Return the rates of a plan's first segments, as sent to nodes."""
    nodes = {int(name) for name in made.terminals()}
    lines = json.loads(WirePlan(made).document(1, nodes, alone=True))["lines"]
    return {node: line["segments"][0]["rate_bps"] for line in lines for node in line["terminals"]}


@pytest.mark.parametrize("heard", [True, False])
def test_one_that_uploads_beside_200_that_do_not_has_nine_tenths_of_the_beam(heard: bool) -> None:
    beam = Beam()
    if heard:
        beam.hear_idle(60_000)
    beam.upload(60_000)
    found = rates(beam.plan(61_000))
    assert found[BUSY] >= 0.9 * BEAM_BPS
    assert sum(found.values()) <= BEAM_BPS
    # Each can still report within a few seconds, and announce that it has started sending.
    assert min(found[node] for node in IDLE) * EVERY_MS >= 8_000 * REPORT_BYTES


def test_what_nobody_uses_is_everybodys() -> None:
    beam = Beam()
    beam.hear_idle(60_000)
    found = rates(beam.plan(61_000))
    assert sum(found.values()) <= BEAM_BPS
    assert min(found.values()) >= 0.99 * BEAM_BPS / 201


def test_what_is_assigned_freely_is_no_debt() -> None:
    beam = Beam()
    beam.hear_idle(60_000)
    beam.upload(60_000)
    entry_ms = START_MS + 100_000
    beam.planner.expect(
        BUSY, [Blockage("tunnel", entry_ms, entry_ms + 30_000, 1.0, START_MS)], START_MS + 61_000
    )
    made = beam.plan(61_000)
    for at_ms in range(61_000, 180_000, 7_000):
        owed = moved(made, START_MS + at_ms)
        assert sum(owed.values()) == 0
    given = made.amounts(made.start_ms, made.end_ms)
    whole = BEAM_BPS * (made.end_ms - made.start_ms) // 1_000
    assert sum(bits for bits, _ in given.values()) <= whole
