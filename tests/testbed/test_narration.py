from __future__ import annotations

import re
from typing import Any

from tests.testbed.narration import SYMBOLS, Narrator

_NOW_S = 1_800_000_000.0
_NAMES = {1: "hub", 10: "t0", 11: "t1", 12: "t2", 13: "t3"}


def _segment(start: str, end: str, state: str, **bits: int) -> dict[str, Any]:
    amounts = dict.fromkeys(
        ("bits", "fair_bits", "borrowed_bits", "lent_bits", "repaid_bits", "repaying_bits"), 0
    )
    day = "2027-01-15T08"
    times = {"start": f"{day}:{start}Z", "end": f"{day}:{end}Z"}
    return {**times, "state": state, **amounts, **bits}


def test_a_plan_is_told_in_the_papers_terms_and_once() -> None:
    borrower = [
        _segment("01:00", "03:00", "borrowing", fair_bits=240_000_000, borrowed_bits=120_000_000),
        _segment("03:00", "04:00", "blocked", fair_bits=120_000_000, repaying_bits=120_000_000),
    ]
    lender = [
        _segment("01:00", "03:00", "lending", fair_bits=240_000_000, lent_bits=40_000_000),
        _segment("03:00", "04:00", "repaid", fair_bits=120_000_000, repaid_bits=40_000_000),
    ]
    lines = {10: borrower, 11: lender, 12: lender, 13: lender}
    narrator = Narrator(_NAMES)
    [told] = narrator.plan("forward", 42, lines, _NOW_S)
    for part in ("t0", "T_t = 60.0 s", "T_r = 120.0 s", "D_u = 120.0", "each of 3", "D_r = 40.0"):
        assert part in told
    assert "D_b = 0.33 Mbit/s" in told
    explained = [line.split()[0] for line in SYMBOLS.splitlines()]
    assert sorted(explained) == sorted(re.findall(r"\b[DT]_[a-z]\b", told))
    assert list(narrator.plan("forward", 43, lines, _NOW_S)) == []
    said = {"link": "forward", "acknowledgements": [{"node": 1, "after_ms": 30}]}
    [taken] = narrator.acknowledgements({**said, "plan": 42}, _NOW_S)
    assert "hub after 30 ms" in taken
    assert list(narrator.acknowledgements({**said, "plan": 43}, _NOW_S)) == []


def test_rates_are_those_of_the_seconds_since_the_last_line() -> None:
    narrator = Narrator(_NAMES)

    def link(time: str, sent: int) -> dict[str, Any]:
        state = {"terminal": 10, "link": "forward", "state": "up", "sent_bytes": sent}
        return {"links": [{**state, "time": f"2027-01-15T08:{time}Z"}]}

    assert list(narrator.links(link("00:00", 1_000), _NOW_S)) == []
    assert list(narrator.links(link("00:01", 9_000), _NOW_S + 1)) == []
    [told] = narrator.links(link("00:08", 2_001_000), _NOW_S + 8)
    assert "t0  2.00  Mbit/s" in told
    # The node was restarted meanwhile.
    [told] = narrator.links(link("00:16", 1_000_000), _NOW_S + 16)
    assert "t0  1.00  Mbit/s" in told


def test_debts_are_told_as_the_balances_have_them() -> None:
    entry = {
        "link": "forward",
        "entry_kind": "settled",
        "moved_bits": 12_000_000,
        "start": "2027-01-15T08:00:00Z",
    }
    narrator = Narrator(_NAMES)
    told = narrator.ledger(entry, {10: -12_000_000, 11: 8_000_000, 12: 4_000_000}, _NOW_S)
    assert told.endswith("on; t0 owes 12.0  t1 is owed 8.0  t2 is owed 4.0 Mbit")
    assert narrator.ledger(entry, {}, _NOW_S).endswith("on; nobody owes anything")
