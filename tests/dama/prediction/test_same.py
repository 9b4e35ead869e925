"""Whether two accounts are of the same blockage."""

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
    is_same_passage,
    is_told_again,
    matched,
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


def test_the_passages_of_one_obstruction_that_were_predicted_together_differ_by_their_times() -> (
    None
):
    first, second = span(60, name="a"), span(300, name="a")
    assert is_same(first, second, NOW_MS)
    assert not is_same_passage(first, second)
    assert is_same_passage(first, span(64, name="a"))
    assert is_same_passage(first, span(64))
    assert not is_same_passage(first, span(60, name="b"))


def test_passages_stay_in_their_order_however_long_the_vehicle_is_held_up() -> None:
    known = [span(300, name="a"), span(60, name="a")]
    assert matched(known, [span(200, name="a"), span(440, name="a")], NOW_MS) == {0: 1, 1: 0}
    # One that is left over is the nearest: the first has come, or is passed by.
    assert matched(known, [span(310, name="a")], NOW_MS) == {0: 0}
    assert matched(known[:1], [span(62, name="a"), span(310, name="a")], NOW_MS) == {1: 0}


def test_what_has_begun_is_not_matched_with_the_way_back() -> None:
    known = [span(-30, 60, "a"), span(200, name="a")]
    assert matched(known, [span(-28, 60, "a"), span(260, name="a")], NOW_MS) == {0: 0, 1: 1}
    assert matched(known, [span(150, name="a")], NOW_MS) == {0: 1}


def test_names_are_matched_before_times() -> None:
    known = [span(60), span(62, name="a"), span(58, name="b")]
    assert matched(known, [span(61, name="a"), span(63)], NOW_MS) == {0: 1, 1: 0}


@given(st.lists(spans, max_size=5), st.lists(spans, max_size=5))
def test_each_is_matched_once_and_only_with_the_same(known: list[Span], said: list[Span]) -> None:
    found = matched(known, said, NOW_MS)
    assert len(set(found.values())) == len(found)
    for other, one in found.items():
        assert is_same(known[one], said[other], NOW_MS)
    # Nothing is left that could be matched.
    for other in set(range(len(said))) - found.keys():
        for one in set(range(len(known))) - set(found.values()):
            assert not is_same(known[one], said[other], NOW_MS)
    for name in "ab":
        pairs = sorted(
            (known[one].entry_ms, said[other].entry_ms)
            for other, one in found.items()
            if known[one].obstruction_id == said[other].obstruction_id == name
            and min(known[one].entry_ms, said[other].entry_ms) > NOW_MS
        )
        assert [there for _, there in pairs] == sorted(there for _, there in pairs)
