from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.rounding import apportion, largest_remainder


@given(st.lists(st.fractions(min_value=0, max_value=1000), min_size=1, max_size=9))
def test_rounding_keeps_the_sum_and_moves_nobody_by_1(parts: list[Fraction]) -> None:
    total = int(sum(parts))
    rounded = largest_remainder(parts, total)
    assert sum(rounded) == total
    assert all(abs(got - part) < 1 for got, part in zip(rounded, parts, strict=True))


def test_the_largest_remainder_is_rounded_up() -> None:
    assert largest_remainder([Fraction(1, 2), Fraction(3, 4), Fraction(3, 4)], 2) == [0, 1, 1]
    with pytest.raises(ValueError, match="sum of 3"):
        largest_remainder([Fraction(1, 2)], 3)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=9), st.fractions(0, 1))
def test_a_share_is_in_proportion_and_within_each_amount(
    amounts: list[int], part: Fraction
) -> None:
    total = int(sum(amounts) * part)
    shared = apportion(amounts, total)
    assert sum(shared) == total
    assert all(0 <= got <= amount for got, amount in zip(shared, amounts, strict=True))
    for part_of_it, amount in zip(shared, amounts, strict=True):
        assert abs(part_of_it * sum(amounts) - amount * total) < max(1, sum(amounts))


def test_more_than_there_is_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="4 cannot be taken from 3"):
        apportion([1, 2], 4)
