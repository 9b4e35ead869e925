"""The rule that reconciles announcements and predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.prediction import Announcement, AnnouncementError, Blockage, reconcile

NOW = 1_000_000


def predicted(
    entry_s: float, duration_s: float = 30.0, confidence: float = 0.8, based_s: float = 0.0
) -> Blockage:
    entry = NOW + round(1000 * entry_s)
    exit_ms = entry + round(1000 * duration_s)
    return Blockage("t", entry, exit_ms, confidence, NOW + round(1000 * based_s))


def announced(
    entry_s: float,
    duration_s: float = 30.0,
    confidence: float = 1.0,
    said_s: float = 0.0,
    name: str | None = None,
) -> Announcement:
    return Announcement(
        NOW + round(1000 * said_s),
        NOW + round(1000 * entry_s),
        round(1000 * duration_s),
        confidence,
        name,
    )


def test_what_only_one_speaks_of_stands() -> None:
    both = reconcile([predicted(200)], [announced(20)], NOW)
    assert [blockage.source for blockage in both] == ["announced", "predicted"]


def test_the_terminals_later_word_counts() -> None:
    (one,) = reconcile([predicted(60, based_s=-2)], [announced(64, 40, 0.9)], NOW)
    assert (one.entry_ms, one.duration_s, one.confidence) == (NOW + 64_000, 40.0, 0.9)
    assert one.obstruction_id == "t"


def test_a_word_from_before_the_last_fix_gives_confidence_but_no_times() -> None:
    (one,) = reconcile([predicted(70, based_s=0)], [announced(60, 40, 0.95, said_s=-30)], NOW)
    assert (one.entry_ms, one.duration_s, one.confidence) == (NOW + 70_000, 30.0, 0.95)


def test_whoever_does_not_know_the_route_makes_no_less_sure_of_what_it_leads_to() -> None:
    known = replace(predicted(60, confidence=0.98, based_s=-2), by_route=True)
    (one,) = reconcile([known], [announced(64, 40, 0.35)], NOW)
    assert (one.entry_ms, one.duration_s, one.confidence) == (NOW + 64_000, 40.0, 0.98)
    assert reconcile([known], [announced(64, 40, 0.0)], NOW) == ()


def test_confidence_0_withdraws_what_it_speaks_of() -> None:
    left = reconcile([predicted(60), predicted(300)], [announced(60, confidence=0.0)], NOW)
    assert [blockage.entry_ms for blockage in left] == [NOW + 300_000]


def test_of_several_announcements_the_latest_counts() -> None:
    (one,) = reconcile([], [announced(60, said_s=-9), announced(66, said_s=-1)], NOW)
    assert one.entry_ms == NOW + 66_000


def test_names_that_differ_are_different_blockages() -> None:
    assert len(reconcile([predicted(60)], [announced(60, name="other")], NOW)) == 2


def test_what_is_over_is_left_out() -> None:
    assert reconcile([], [announced(-50, 40)], NOW) == ()


@pytest.mark.parametrize(
    ("entry_s", "duration_s", "confidence"),
    [(60, 30, 1.1), (60, 30, float("nan")), (60, 0, 1), (60, -1, 1), (60, 3601, 1), (3601, 30, 1)],
)
def test_impossible_announcements_are_refused(
    entry_s: float, duration_s: float, confidence: float
) -> None:
    with pytest.raises(AnnouncementError):
        announced(entry_s, duration_s, confidence)


entries = st.floats(-20.0, 600.0)
shares = st.floats(0.0, 1.0)


@given(
    st.lists(st.builds(predicted, entries, st.floats(1.0, 300.0), shares), max_size=6),
    st.lists(st.builds(announced, entries, st.floats(1.0, 300.0), shares), max_size=6),
)
def test_nothing_is_counted_twice_and_order_does_not_matter(
    blockages: list[Blockage], announcements: list[Announcement]
) -> None:
    result = reconcile(blockages, announcements, NOW)
    assert len(result) <= len(blockages) + len(announcements)
    assert all(0.0 < blockage.confidence <= 1.0 for blockage in result)
    assert list(result) == sorted(result, key=lambda b: (b.entry_ms, b.exit_ms))
    assert reconcile(result, [], NOW) == result
