from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings

from dama.planner import PlanError, Request, plan
from dama.planner.text import line_document, plan_document, read_line, text
from tests.dama.requests import requests


@settings(max_examples=30, deadline=None)
@given(requests(balances=True))
def test_a_line_reads_back_as_it_was(request: Request) -> None:
    for line in plan(request).lines():
        assert read_line(json.loads(text(line_document(line)))) == line


@settings(max_examples=30, deadline=None)
@given(requests())
def test_rates_on_the_wire_never_exceed_the_capacity(request: Request) -> None:
    made = plan(request)
    document = json.loads(text(plan_document(made, 7)))
    assert document["version"] == 7
    assert document["link"] == request.link.value
    efficiencies = {terminal.id: terminal.efficiency for terminal in request.terminals}
    for begin in made.network.times_ms[:-1]:
        whole = [step.rate_bps for step in request.capacity if step.from_ms <= begin][-1]
        used = sum(
            segment["rate_bps"] / efficiencies[line["terminal"]]
            for line in document["lines"]
            for segment in line["segments"]
            if segment["start_ms"] <= begin < segment["end_ms"]
        )
        # A column's bits are whole, and right to the bit up to its end.
        shortest = min(late - early for early, late in itertools.pairwise(made.network.times_ms))
        assert used <= whole + 1000 / shortest


@settings(max_examples=5, deadline=None)
@given(requests())
def test_only_the_lines_that_are_asked_for_are_written(request: Request) -> None:
    made = plan(request)
    name = request.terminals[-1].id
    assert plan_document(made, 1, [name])["lines"] == [line_document(made.line(name))]
    with pytest.raises(KeyError):
        plan_document(made, 1, ["nobody"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terminal": 1}, "no terminal"),
        ({"segments": []}, "no segments"),
        ({"efficiency": "1/0"}, "efficiency '1/0'"),
        ({"efficiency": 1.5}, "efficiency 1.5"),
        ({"segments": [1]}, "not an object"),
        ({"bits": -1}, "bits -1"),
        ({"bits": True}, "bits True"),
        ({"blocked": 0}, "whether it is blocked"),
        ({"end_ms": 0}, "ends before it begins"),
    ],
)
def test_a_line_that_is_none_is_refused(change: dict[str, object], message: str) -> None:
    segment = dict.fromkeys(
        ("bits", "fair_bits", "borrowed_bits", "lent_bits", "repaid_bits", "repaying_bits"), 0
    )
    whole = {"start_ms": 0, "end_ms": 10, **segment, "blocked": False}
    line: dict[str, object] = {"terminal": "A", "efficiency": "1", "segments": [whole]}
    read_line(line)
    if set(change) <= set(line):
        line |= change
    else:
        line["segments"] = [whole | change]
    with pytest.raises(PlanError, match=message):
        read_line(line)


def test_segments_with_a_gap_are_refused() -> None:
    amounts = dict.fromkeys(
        ("bits", "fair_bits", "borrowed_bits", "lent_bits", "repaid_bits", "repaying_bits"), 0
    )
    segments = [
        {"start_ms": start, "end_ms": start + 5, **amounts, "blocked": False} for start in (0, 6)
    ]
    with pytest.raises(PlanError, match="does not follow"):
        read_line({"terminal": "A", "efficiency": "1", "segments": segments})
    with pytest.raises(PlanError, match="not an object"):
        read_line([])
