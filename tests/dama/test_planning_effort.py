"""The cost of planning, in counted operations."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from dama.planner import Blockage, CapacityStep, Link, Request, Terminal, flow, plan, smoothing
from tests.dama.requests import town


def test_what_nobody_is_due_is_not_shared_out_way_by_way(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    greedy = random.random(500) < 0.5
    terminals = tuple(
        Terminal(
            str(node),
            floor_bps=64_000,
            maximum_bps=20_000_000,
            # In steps of an eighth, as the service gives them.
            demand_bps=None if greedy[node] else round(64_000 * 1.125 ** random.integers(0, 36)),
            owed_bits=int(random.integers(-8_000_000, 8_000_000)),
        )
        for node in range(500)
    )
    blockages = tuple(
        Blockage(str(node), entry_ms, entry_ms + int(random.integers(500, 50_000)))
        for node in range(0, 500, 20)
        for entry_ms in [int(random.integers(2_000, 110_000))]
    )
    steps = (CapacityStep(0, 1_000_000_000),)
    searches = 0
    search = flow._search

    def counted(*given: Any) -> Any:
        nonlocal searches
        searches += 1
        return search(*given)

    monkeypatch.setattr(flow, "_search", counted)
    plan(Request("east", Link.RETURN, 0, 220_000, steps, terminals, blockages, settle_ms=215_000))
    # It would be thousands if each flow were made from the one before.
    assert searches < 300


def calls(request: Request) -> int:
    """Return how many functions are called for a plan, numpy's included."""
    count = 0

    def counted(_frame: FrameType, event: str, _given: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        plan(request)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("is_lent_for", [True, False])
def test_the_effort_grows_with_the_columns_and_not_with_their_square(is_lent_for: bool) -> None:
    few, many = (town(5, 20, blockages, sure=True) for blockages in (40, 320))
    if not is_lent_for:
        few, many = (
            replace(
                request,
                blockages=tuple(
                    replace(one, is_lent_for=number % 8 == 0)
                    for number, one in enumerate(request.blockages)
                ),
            )
            for request in (few, many)
        )
    # Eight times as many columns.
    assert calls(many) < 12 * calls(few)


def test_a_turn_of_the_prices_works_out_each_cell_six_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = worked_out = 0
    newton, put_flow = smoothing._newton, smoothing._Side._put_flow

    def turned(*given: Any) -> Any:
        nonlocal turns
        turns += 1
        return newton(*given)

    def counted(side: smoothing._Side, prices: Any, others: Any, found: Any) -> None:
        nonlocal worked_out
        worked_out += found.size
        assert found.size <= max(smoothing._BLOCK_CELLS, found.shape[1])
        put_flow(side, prices, others, found)

    monkeypatch.setattr(smoothing, "_newton", turned)
    monkeypatch.setattr(smoothing._Side, "_put_flow", counted)
    made = plan(town(5, 100, 600, sure=True))
    cells = len(made.parts) * len(made.capacity_bps)
    assert cells > smoothing._BLOCK_CELLS
    assert worked_out <= 6 * turns * cells


class CountedSums(np.ndarray[tuple[int, ...], np.dtype[np.int64]]):
    """Cells that count how often they are summed."""

    sums = 0

    def sum(self, *given: Any, **named: Any) -> Any:
        CountedSums.sums += 1
        return np.asarray(self).sum(*given, **named)


def test_a_flow_looks_at_all_cells_once_however_often_it_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each row may use two columns that follow each other, so what the last one needs is passed on
    # from row to row, and the ways there become longer and longer.
    rows = 12
    greatest = np.zeros((rows, rows + 1), dtype=np.int64)
    for row in range(rows):
        greatest[row, row : row + 2] = 10
    begin = np.where(np.eye(rows, rows + 1, dtype=np.bool_), greatest, 0)
    room = flow.Room(np.zeros_like(greatest), greatest, np.full(rows + 1, 10, dtype=np.int64))
    wanted = np.full(rows, 10, dtype=np.int64)
    wanted[0] = 13
    searches = 0
    search = flow._search

    def counted(*given: Any) -> Any:
        nonlocal searches
        searches += 1
        return search(*given)

    monkeypatch.setattr(flow, "_search", counted)
    monkeypatch.setattr(CountedSums, "sums", 0)
    cells = begin.view(CountedSums)
    assert flow.grow(cells, wanted, room) is None
    made = np.asarray(cells)
    assert (made.sum(axis=1) == wanted).all()
    assert (made.sum(axis=0) <= room.capacity).all()
    assert ((made >= 0) & (made <= greatest)).all()
    assert searches >= 1
    # Twice at the beginning, twice after what is free has been filled.
    assert CountedSums.sums == 4
    # The cut that prevents more is found at the same cost.
    wanted[0] = 30
    cut = flow.grow(cells, wanted, room)
    assert cut is not None
    assert cut.available(room) == made[cut.rows].sum()
    assert CountedSums.sums <= 2 * 4
