"""The prices by which the smoothest flow is found."""

from __future__ import annotations

import numpy as np
import pytest

from dama.planner.flow import Room
from dama.planner.smoothing import _newton, _Side


@pytest.mark.parametrize(("rows", "columns"), [(3, 40), (20, 20), (300, 7)])
def test_newtons_step_meets_all_amounts_whichever_side_has_more(rows: int, columns: int) -> None:
    random = np.random.default_rng(1)
    fair = random.integers(10_000, 20_000, (rows, columns))
    # The wanted bits of each row and of each column; both have the same sum.
    shall = fair + random.integers(-3_000, 3_000, (rows, columns))
    wanted, capacity = shall.sum(axis=1), shall.sum(axis=0)
    least, greatest = np.zeros_like(fair), np.full_like(fair, 10**9)
    slopes = random.uniform(1, 9, (rows, columns))
    side = _Side(
        fair.astype(np.float64),
        slopes,
        least.astype(np.float64),
        greatest.astype(np.float64),
        wanted.astype(np.float64),
    )
    # All columns have a price, and no cell is at a bound.
    begin = np.full(rows, 500.0), np.full(columns, 500.0)
    there = _newton(side, Room(least, greatest, capacity), side.flow(*begin), *begin)
    flow = side.flow(*there)
    assert np.abs(flow.sum(axis=1) - wanted).max() < 1e-2
    assert np.abs(flow.sum(axis=0) - capacity).max() < 1e-2
