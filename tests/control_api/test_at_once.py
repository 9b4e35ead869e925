"""Expensive work is done for a few callers at a time; others are told to try again."""

from __future__ import annotations

import pytest
from underpass_control.http.at_once import AtOnce
from underpass_control.http.problem import Problem


def test_so_many_are_let_in_and_each_leaves_room_whatever_it_ends_by() -> None:
    few = AtOnce(2, "maps")
    with few.one():
        with pytest.raises(RuntimeError), few.one():
            with pytest.raises(Problem, match="2 maps"), few.one():
                pytest.fail("it was let in")
            raise RuntimeError
        with few.one():
            pass
    assert few.is_idle


def test_a_party_has_no_more_than_there_is_room_left_for() -> None:
    few = AtOnce(5, "questions")
    with few.one("one"), few.one("one"), few.one("one"):
        with pytest.raises(Problem, match="3 questions of yours") as refused, few.one("one"):
            pytest.fail("it was let in")
        assert refused.value.status == 429
        with few.one("other"), few.one("third"):
            with pytest.raises(Problem, match="5 questions") as refused, few.one("fourth"):
                pytest.fail("it was let in")
            assert refused.value.status == 503
        with few.one("other"), pytest.raises(Problem), few.one("one"):
            pytest.fail("it was let in")
    with few.one("one"), few.one("one"), few.one("one"):
        pass
