from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import dama.planner.text as planner_text
from dama.planner import PlanError, Request, plan
from dama.planner.text import line_document, plan_document, read_plan, text
from tests.dama.requests import requests, town


@settings(max_examples=30, deadline=None)
@given(requests(balances=True))
def test_a_plan_reads_back_to_the_bit(request: Request) -> None:
    made = plan(request)
    written = text(plan_document(made))
    read = read_plan(json.loads(written))
    assert list(read.lines()) == list(made.lines())
    assert text(plan_document(read)) == written
    assert (read.start_ms, read.end_ms, read.issued_ms) == (
        made.start_ms,
        made.end_ms,
        made.issued_ms,
    )


@settings(max_examples=30, deadline=None)
@given(requests(balances=True))
def test_all_amounts_at_once_are_those_of_the_lines_but_for_rounding(request: Request) -> None:
    made = plan(request)
    middle = (made.start_ms + made.end_ms) // 2
    for begin, end in ((0, middle), (middle, made.end_ms), (made.end_ms, made.end_ms + 9)):
        at_once = made.amounts(begin, end)
        for line in made.lines():
            assert np.allclose(at_once[line.terminal], line.amounts(begin, end), atol=2, rtol=0)
    whole = made.amounts(made.start_ms, made.end_ms)
    for line in made.lines():
        assert whole[line.terminal] == line.amounts(made.start_ms, made.end_ms)


@settings(max_examples=20, deadline=None)
@given(requests())
def test_a_lines_rates_are_whole_and_rounded_down(request: Request) -> None:
    for line in plan(request).lines():
        document = line_document(line)
        efficiency = Fraction(document["efficiency"])
        for segment in document["segments"]:
            ms = segment["end_ms"] - segment["start_ms"]
            exact = segment["bits"] * efficiency * 1000 / ms
            assert 0 <= exact - segment["rate_bps"] < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beam": None, "link": "sideways"}, "sideways"),
        ({"groups": [{"fair_bits": [1]}]}, "members"),
        ({"groups": None}, "NoneType"),
        ({"parts": [{}]}, "entitlements"),
    ],
)
def test_what_is_no_plan_is_refused(change: dict[str, object], message: str) -> None:
    whole = {
        "beam": "east",
        "link": "return",
        "issued_ms": 0,
        "times_ms": [0, 10],
        "capacity_bps": [1],
        "groups": [],
        "parts": [],
    }
    read_plan(whole)
    with pytest.raises(PlanError, match=message):
        read_plan(whole | change)


def test_it_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    document = plan_document(plan(town(1, 60, 100, sure=True)))
    pieces = []
    encoder = planner_text._ENCODER

    class Counted:
        def encode(self, value: Any) -> str:
            pieces.append(encoder.encode(value))
            return pieces[-1]

    monkeypatch.setattr(planner_text, "_ENCODER", Counted())
    written = text(document)
    assert written == json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    # One for each row of some fifty, and a group's fair share.
    assert max(map(len, pieces)) < len(written) / 20
