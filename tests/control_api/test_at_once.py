"""Work that costs much is done for a few at once; the others are told to come again."""

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
