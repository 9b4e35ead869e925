from __future__ import annotations

import pytest

from tests.benchmarks.experiments.pep_and_cc import Course, course_of

_FULL_STEP = 1_689_333  # A tenth of a second of payload at 140 Mbit/s.


def test_a_burst_after_a_gap_never_counts_as_more_than_the_link() -> None:
    course = Course([0] * 20 + [_FULL_STEP * 20] + [_FULL_STEP] * 20)
    assert max(course.windows_bps()) <= 140e6
    assert course.bytes_at(5) == course.total


def test_what_is_spread_is_only_delayed_and_never_counted_twice() -> None:
    course = Course([0] * 5 + [_FULL_STEP * 4] + [0] * 10)
    assert sum(course.spread()) == pytest.approx(course.total)
    assert course.spread()[:5] == [0] * 5


def test_a_download_that_never_reaches_the_rate_takes_its_whole_time_to_it() -> None:
    assert Course([_FULL_STEP // 2] * 50).time_to_90_s() == pytest.approx(5.0)
    assert Course([_FULL_STEP] * 50).time_to_90_s() == 1.0


def test_steady_state_leaves_start_up_out() -> None:
    course = Course([0] * 100 + [_FULL_STEP] * 100)
    assert course.steady_bps() == pytest.approx(135.1e6, rel=0.001)


def test_a_download_that_was_ended_has_no_last_byte() -> None:
    assert Course([1] * 10, complete=False).last_byte_s is None


def test_a_download_that_brought_nothing_within_its_time_counts_with_that_time() -> None:
    course = course_of({"error": "interrupted"}, 12.0, complete=False)
    assert (course.total, course.last_byte_s) == (0, None)
    assert course.time_to_90_s() == course.seconds == pytest.approx(12.0)
    assert course.steady_bps() == 0
    with pytest.raises(RuntimeError, match="refused"):
        course_of({"error": "refused"}, 12.0, complete=True)
