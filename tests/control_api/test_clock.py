"""One clock for all: the database's, measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control import clock
from underpass_control.clock import Clock


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop this machine's clock."""
    monkeypatch.setattr(clock, "host_ms", lambda: 5_000.0)


def test_without_a_measurement_it_is_this_machines() -> None:
    assert Clock().now_ms() == 5_000


def test_what_the_measurement_may_be_wrong_by_is_no_offset() -> None:
    made = Clock()
    made.measured(1_000, 1_060, 1_100)
    assert (made.offset_ms, made.now_ms()) == (0, 5_000)


@given(st.lists(st.tuples(st.floats(0, 400), st.floats(0, 400)), min_size=1, max_size=20))
def test_the_offset_is_right_within_the_shortest_way(ways: list[tuple[float, float]]) -> None:
    made = Clock()
    for there_ms, back_ms in ways:
        asked_ms = 1_000.0
        made.measured(asked_ms, asked_ms + there_ms + 90_000, asked_ms + there_ms + back_ms)
    shortest = min(there_ms + back_ms for there_ms, back_ms in ways[-8:])
    assert abs(made.offset_ms - 90_000) <= shortest / 2 + 1e-6


def test_a_clock_that_is_set_is_followed_at_once() -> None:
    made = Clock()
    for _ in range(8):
        made.measured(1_000, 4_001, 1_002)
    made.measured(1_000, 601_020, 1_040)
    assert made.now_ms() == 5_000 + 600_000
    made.measured(1_000, 1_001, 1_002)
    assert made.now_ms() == 5_000
