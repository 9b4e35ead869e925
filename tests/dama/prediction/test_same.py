"""Whether two accounts speak of the same blockage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.prediction.same import (
    EXPECTED_MS,
    OBSERVED_MS,
    Span,
    has_begun,
    is_announced,
    is_same,
    is_told_again,
)

NOW_MS = 1_000_000
spans = st.builds(
    lambda name, ahead_ms, lasting_ms: Span(
        name, NOW_MS + ahead_ms, NOW_MS + ahead_ms + lasting_ms
    ),
    st.sampled_from([None, "a", "b"]),
    st.integers(-200_000, 200_000),
    st.integers(1, 100_000),
)


def span(ahead_s: float, lasting_s: float = 20, name: str | None = None) -> Span:
    entry_ms = NOW_MS + round(1000 * ahead_s)
    return Span(name, entry_ms, entry_ms + round(1000 * lasting_s))


@given(spans, spans)
def test_it_makes_no_difference_which_is_named_first(one: Span, other: Span) -> None:
    assert is_same(one, other, NOW_MS) == is_same(other, one, NOW_MS)
    assert is_announced(one, other, NOW_MS) == is_announced(other, one, NOW_MS)
    assert is_same(one, one, NOW_MS)


@given(spans, spans)
def test_what_is_the_same_as_expected_is_so_for_an_announcement_too(one: Span, other: Span) -> None:
    if is_same(one, other, NOW_MS):
        assert is_announced(one, other, NOW_MS)


@given(spans, spans)
def test_different_obstructions_are_never_the_same(one: Span, other: Span) -> None:
    one, other = one._replace(obstruction_id="a"), other._replace(obstruction_id="b")
    assert not is_same(one, other, NOW_MS)
    assert not is_announced(one, other, NOW_MS)


def test_one_obstruction_is_the_same_however_long_the_vehicle_is_held_up() -> None:
    assert is_same(span(60, name="a"), span(600, name="a"), NOW_MS)


def test_the_way_back_through_one_that_has_begun_is_another_blockage() -> None:
    assert not is_same(span(-30, name="a"), span(120, name="a"), NOW_MS)
    assert is_same(span(-30, 40, "a"), span(-25, 40, "a"), NOW_MS)


@pytest.mark.parametrize(("apart_ms", "same"), [(EXPECTED_MS, True), (EXPECTED_MS + 1, False)])
def test_without_names_entries_that_are_near_are_the_same(apart_ms: int, same: bool) -> None:
    one = span(30, 5)
    other = Span("a", one.entry_ms + apart_ms, one.entry_ms + apart_ms + 1)
    assert is_same(one, other, NOW_MS) is same


def test_an_announcement_may_be_the_further_off_the_further_ahead_it_is() -> None:
    assert is_announced(span(200, 5), span(249, 5), NOW_MS)
    assert not is_announced(span(40, 5), span(51, 5), NOW_MS)


@pytest.mark.parametrize(
    ("after_ms", "begun"),
    [
        (-OBSERVED_MS, True),
        (-OBSERVED_MS - 1, False),
        (OBSERVED_MS, True),
        (59_999, True),
        (60_000, False),
    ],
)
def test_an_observed_entry_is_near_the_expected_one_or_inside(after_ms: int, begun: bool) -> None:
    expected = span(0, 60)
    assert has_begun(expected, NOW_MS + after_ms) is begun


def test_a_blockage_that_has_begun_is_told_again_until_its_exit() -> None:
    begun = span(0, 60, "a")
    again = span(90, 60, "a")
    assert is_told_again(again, NOW_MS + 60_000, begun)
    assert not is_told_again(again, NOW_MS + 60_001, begun)
    assert not is_told_again(span(0, 60, "b"), NOW_MS, begun)
    assert is_told_again(span(20, 60), NOW_MS, begun)
