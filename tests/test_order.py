"""The longest modules begin first, and their list names what there is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.order import FOLDER, LONGEST, longest_first


def test_modules_that_are_long_come_first_then_those_of_most_tests() -> None:
    long, longer = FOLDER / LONGEST[1], FOLDER / LONGEST[0]
    few, most = Path("a/test_few.py"), Path("b/test_most.py")
    collected = [(few, "a"), (most, "a"), (most, "b"), (long, "b"), (long, "a"), (longer, "a")]
    items: list[Any] = [SimpleNamespace(path=path, name=name) for path, name in collected]
    longest_first(items)
    found = [(item.path, item.name) for item in items]
    wanted = [(longer, "a"), (long, "b"), (long, "a"), (most, "a"), (most, "b"), (few, "a")]
    assert found == wanted


def test_each_module_of_the_list_exists() -> None:
    assert [name for name in LONGEST if not (FOLDER / name).exists()] == []
    assert len(set(LONGEST)) == len(LONGEST)
