"""Planning takes about as long whatever demands and balances are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dama.planner import Blockage, CapacityStep, Link, Request, Terminal, flow, plan


def test_what_nobody_is_due_is_not_shared_out_way_by_way(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    greedy = random.random(500) < 0.5
    terminals = tuple(
        Terminal(
            str(node),
            floor_bps=64_000,
            maximum_bps=20_000_000,
            # As the service tells them: in steps of an eighth.
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
    # Thousands, were each flow made from the one before.
    assert searches < 300
