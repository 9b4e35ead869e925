from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.formulas import FormulaError, borrowed_bps, jain_index, repaid_bits, unused_bits

_RATES = st.fractions(min_value=0, max_value=10**10)
_TIMES_MS = st.integers(1, 10**7)
_SESSIONS = st.integers(2, 10_000)


def test_the_paper_s_experiment_lends_a_third_of_a_megabit_per_second() -> None:
    rate = 2_000_000
    assert unused_bits(rate, 60_000) == 120_000_000
    assert borrowed_bps(rate, 60_000, 120_000, 4) == Fraction(1_000_000, 3)
    assert repaid_bits(rate, 60_000, 4) == 40_000_000


@given(_RATES, _TIMES_MS, _SESSIONS)
def test_volume_is_conserved(rate: Fraction, blocked_ms: int, sessions: int) -> None:
    repaid = repaid_bits(rate, blocked_ms, sessions)
    assert (sessions - 1) * repaid == unused_bits(rate, blocked_ms)


@given(_RATES, _TIMES_MS, _TIMES_MS, _SESSIONS)
def test_what_is_lent_is_repaid(
    rate: Fraction, blocked_ms: int, lead_ms: int, sessions: int
) -> None:
    lent = borrowed_bps(rate, blocked_ms, lead_ms, sessions) * lead_ms / 1000
    assert lent == repaid_bits(rate, blocked_ms, sessions)


@given(st.lists(st.fractions(min_value=0, max_value=10**9), min_size=1, max_size=8))
def test_jain_s_index_is_between_1_over_n_and_1(throughputs: list[Fraction]) -> None:
    assert Fraction(1, len(throughputs)) <= jain_index(throughputs) <= 1


def test_jain_s_index_of_the_paper_s_own_table() -> None:
    with_repay = jain_index([498.4, 544.8, 543.2, 544])
    assert round(float(with_repay), 4) == 0.9986
    assert jain_index([5, 5, 5]) == 1
    assert jain_index([5, 0, 0]) == Fraction(1, 3)
    assert jain_index([0, 0]) == 1


def test_formulas_refuse_what_has_no_meaning() -> None:
    with pytest.raises(FormulaError, match="takes two"):
        repaid_bits(1, 1, 1)
    with pytest.raises(FormulaError, match="no time to borrow"):
        borrowed_bps(1, 1, 0, 2)
    with pytest.raises(FormulaError, match="negative"):
        unused_bits(-1, 1)
    with pytest.raises(FormulaError, match="negative"):
        unused_bits(1, -1)
    for throughputs in ([], [-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(FormulaError):
            jain_index(throughputs)
