from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.rounding import apportion


def test_the_largest_remainder_is_rounded_up() -> None:
    assert apportion([2, 3, 3], 4) == [1, 2, 1]
    assert apportion([7, 7, 7], 7) == [3, 2, 2]


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
