"""Requests for plans, as hypothesis draws them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from dama.planner import Blockage, CapacityStep, FairShare, Link, Request, Terminal

START_MS = 1_700_000_000_000
_BEAM_BPS = 8_000_000
_TOWN_MS = 180_000


@st.composite
def requests(
    draw: st.DrawFn,
    *,
    most_terminals: int = 6,
    most_blockages: int = 4,
    bounds: bool = True,
    balances: bool = False,
) -> Request:
    """Draw a beam with a few terminals, blockages that may overlap, and fades."""
    horizon_s = draw(st.integers(60, 600))
    fair_share = draw(st.sampled_from(FairShare))
    names = [f"t{number}" for number in range(draw(st.integers(2, most_terminals)))]
    terminals = [draw(_terminals(name, fair_share, bounds=bounds)) for name in names]
    if balances:
        terminals = draw(_owing(terminals))
    blockages = []
    for _ in range(draw(st.integers(0, most_blockages))):
        entry = draw(st.integers(-10, horizon_s - 1))
        blockages.append(
            Blockage(
                draw(st.sampled_from(names)),
                START_MS + 1000 * entry + draw(st.sampled_from((0, 1, 333))),
                START_MS + 1000 * (entry + draw(st.integers(1, 120))),
                draw(st.sampled_from((1.0, 1.0, 0.75, 0.3))),
            )
        )
    weather = draw(st.lists(st.integers(1, horizon_s), max_size=2, unique=True))
    steps = [CapacityStep(START_MS, _BEAM_BPS)]
    steps += [
        CapacityStep(START_MS + 1000 * second, draw(st.integers(0, 2 * _BEAM_BPS)))
        for second in sorted(weather)
    ]
    return Request(
        beam="beam",
        link=draw(st.sampled_from(Link)),
        now_ms=START_MS,
        end_ms=START_MS + 1000 * horizon_s,
        capacity=tuple(steps),
        terminals=tuple(terminals),
        blockages=tuple(blockages),
        signalling_delay_ms=draw(st.sampled_from((0, 0, 400))),
        one_way_delay_ms=250,
    )


@st.composite
def _terminals(draw: st.DrawFn, name: str, fair_share: FairShare, *, bounds: bool) -> Terminal:
    weight: Fraction = draw(st.sampled_from([Fraction(1), Fraction(2), Fraction(3, 2)]))
    if not bounds:
        return Terminal(name, weight=weight)
    minimum = draw(st.sampled_from((0, 0, 100_000, 1_000_000)))
    return Terminal(
        name,
        weight=weight,
        minimum_bps=minimum,
        floor_bps=draw(st.sampled_from((0, 0, 64_000))),
        maximum_bps=draw(st.sampled_from((None, None, 1_500_000, 4_000_000))),
        demand_bps=draw(st.sampled_from((None, None, None, 0, 700_000))),
        efficiency=draw(
            st.sampled_from([Fraction(1), Fraction(2), Fraction(4, 5), Fraction(1, 4)])
        ),
        fair_share=fair_share,
    )


@st.composite
def _owing(draw: st.DrawFn, terminals: list[Terminal]) -> list[Terminal]:
    """Draw balances between the terminals; they sum to zero."""
    debts = [draw(st.integers(-40_000_000, 40_000_000)) for _ in terminals[1:]]
    debts.append(-sum(debts))
    return [
        replace(terminal, owed_bits=owed) for terminal, owed in zip(terminals, debts, strict=True)
    ]


def town(
    seed: int,
    terminals: int,
    blockages: int,
    link: Link = Link.RETURN,
    *,
    sure: bool = False,
    longest_ms: int = 3_000,
) -> Request:
    """Draw a beam whose terminals pass by many houses, and a capacity that changes twice."""
    random = np.random.default_rng(seed)
    last_ms = _TOWN_MS - 60_000
    steps = sorted({0, *(int(ms) for ms in random.integers(1, _TOWN_MS, 2))})
    return Request(
        "east",
        link,
        START_MS,
        START_MS + _TOWN_MS,
        tuple(
            # Whole bits in each ms.
            CapacityStep(START_MS + ms, 1_000 * terminals * int(random.integers(1_500, 2_500)))
            for ms in steps
        ),
        tuple(
            Terminal(str(node), weight=1 + node % 2, floor_bps=64_000)
            for node in range(1, terminals + 1)
        ),
        tuple(
            Blockage(
                str(random.integers(1, terminals + 1)),
                entry_ms,
                entry_ms + int(random.integers(longest_ms // 30, longest_ms)),
                1.0 if sure else float(random.choice([1.0, 1.0, 0.75, 0.3])),
                is_lent_for=sure or bool(random.random() < 0.8),
            )
            for entry_ms in (START_MS + random.integers(-500, last_ms, blockages)).tolist()
        ),
        signalling_delay_ms=400,
        one_way_delay_ms=280,
        settle_ms=START_MS + _TOWN_MS - 10_000,
    )
