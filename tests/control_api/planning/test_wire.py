"""Plans on the wire: the vectors, and laws for every document."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from underpass_control.http.plan_stream import read_id, write_id
from underpass_control.planning.wire import WirePlan, guaranteed_rates

from dama.planner import Blockage, CapacityStep, Link, Request, Terminal, plan
from tests.dama.requests import requests

VECTORS = Path(__file__).parents[3] / "docs" / "vectors" / "control"
T0 = 1_795_230_000_000


def paper(**options: Any) -> WirePlan:
    request = Request(
        "east",
        Link.RETURN,
        T0 + 59_700,
        T0 + 300_000,
        (CapacityStep(T0, 8_000_000),),
        tuple(Terminal(str(node)) for node in (10, 11, 12, 13)),
        (Blockage("10", T0 + 180_000, T0 + 240_000),),
        signalling_delay_ms=300,
        **options,
    )
    return WirePlan(plan(request))


def test_the_papers_plan_is_the_vector_to_the_byte() -> None:
    (vector,) = [
        one["text"]
        for one in json.loads((VECTORS / "plan-valid.json").read_text())["plans"]
        if one["name"].startswith("the paper's")
    ]
    assert paper().document(42, {10, 11, 12, 13}, alone=True) == vector


def test_a_gateway_is_sent_its_own_terminals_and_its_part_of_the_capacity() -> None:
    document = json.loads(paper().document(42, {10, 11}, alone=False))
    assert [line["terminals"] for line in document["lines"]] == [[10], [11]]
    # The sum of its terminals' rates; while one is inside, the other's rate alone.
    assert [step["rate_bps"] for step in document["capacity"]] == [
        4_666_666,
        2_666_666,
        4_000_000,
    ]


def numbered(request: Request) -> Request:
    """Name the terminals by their numbers, as the service does."""
    names = {one.id: str(n) for n, one in enumerate(request.terminals, 1)}
    terminals = tuple(replace(one, id=names[one.id], floor_bps=0) for one in request.terminals)
    blockages = tuple(
        Blockage(names[one.terminal], one.entry_ms, one.exit_ms, one.confidence)
        for one in request.blockages
    )
    return Request(
        request.beam,
        request.link,
        request.now_ms,
        request.end_ms,
        request.capacity,
        terminals,
        blockages,
        request.signalling_delay_ms,
        request.one_way_delay_ms,
    )


@settings(max_examples=40, deadline=None)
@given(requests(balances=True))
def test_every_document_is_as_the_protocol_says(given_request: Request) -> None:
    request = numbered(given_request)
    made = plan(request)
    nodes = {int(terminal.id) for terminal in request.terminals}
    document = json.loads(WirePlan(made).document(7, nodes, alone=True))
    told = [node for line in document["lines"] for node in line["terminals"]]
    assert sorted(told) == sorted(nodes)
    efficiencies = {int(one.id): Fraction(one.efficiency) for one in request.terminals}
    used = dict.fromkeys(made.times_ms[:-1], Fraction())
    for line in document["lines"]:
        segments = line["segments"]
        assert segments[0]["start_ms"] == made.start_ms
        assert segments[-1]["end_ms"] == made.end_ms
        for before, after in itertools.pairwise(segments):
            assert before["end_ms"] == after["start_ms"]
        for segment in segments:
            assert segment["start_ms"] < segment["end_ms"]
            assert segment["rate_bps"] >= 0
            assert segment["state"] != "blocked" or segment["rate_bps"] == 0
            for begin in used:
                if segment["start_ms"] <= begin < segment["end_ms"]:
                    for node in line["terminals"]:
                        used[begin] += segment["rate_bps"] / efficiencies[node]
    shortest = min(late - early for early, late in itertools.pairwise(made.times_ms))
    for capacity, rate in zip(made.capacity_bps, used.values(), strict=True):
        # A column's bits are whole, and right to the bit up to its end.
        assert rate <= capacity + 1 + Fraction(1000, shortest)


@settings(max_examples=40, deadline=None)
@given(requests())
def test_guaranteed_rates_never_sum_to_more_than_the_capacity(given_request: Request) -> None:
    request = numbered(given_request)
    made = plan(request)
    efficiencies = {int(one.id): Fraction(one.efficiency) for one in request.terminals}
    rates = guaranteed_rates(made)
    assert sum(rate / efficiencies[node] for node, rate in rates.items()) <= made.capacity_bps[-1]


def test_no_rate_is_above_what_the_protocol_can_say() -> None:
    terminals = tuple(Terminal(str(node), efficiency=Fraction(1_000)) for node in (10, 11))
    steps = (CapacityStep(0, 10_000_000_000),)
    made = WirePlan(plan(Request("east", Link.FORWARD, 0, 180_000, steps, terminals)))
    document = json.loads(made.document(42, {10, 11}, alone=True))
    (line,) = document["lines"]
    assert line["guaranteed_bps"] == 10**12
    assert [one["rate_bps"] for one in line["segments"]] == [10**12]
    assert [step["rate_bps"] for step in document["capacity"]] == [10**12]


def test_spare_capacity_of_the_return_link_is_given_out() -> None:
    def rates(link: Link) -> dict[int, int]:
        request = Request(
            "east",
            link,
            T0,
            T0 + 60_000,
            (CapacityStep(T0, 8_000_000),),
            (Terminal("1", demand_bps=1_000_000), Terminal("2", demand_bps=500_000)),
        )
        document = json.loads(WirePlan(plan(request)).document(1, {1, 2}, alone=True))
        return {
            node: line["segments"][0]["rate_bps"]
            for line in document["lines"]
            for node in line["terminals"]
        }

    assert rates(Link.FORWARD) == {1: 1_000_000, 2: 500_000}
    assert rates(Link.RETURN) == {1: 4_250_000, 2: 3_750_000}


def test_an_id_reads_back_and_whatever_else_says_nothing() -> None:
    sent = {("east", Link.FORWARD): 41, ("ku-1", Link.RETURN): 1_795_230_000}
    assert read_id(write_id(sent)) == sent
    for text in ("", "east", "east.forward.-1", "east.sideways.3", "x" * 5_000, "a.forward.9" * 99):
        assert read_id(text) == {}
    many = {(f"beam-{n}", Link.FORWARD): n for n in range(1_000)}
    assert len(write_id(many)) <= 4_096
    assert read_id(write_id(many)).items() <= many.items()
