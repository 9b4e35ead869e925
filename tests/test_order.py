"""The longest modules begin first, and the lists name what there is."""

from __future__ import annotations

import re
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


def test_all_modules_with_test_beds_are_where_make_looks_for_them() -> None:
    makefile = (FOLDER.parent / "Makefile").read_text()
    told = dict(re.findall(r"^(\w+) := (.*)$", makefile, re.MULTILINE))
    marked = re.compile(rf"pytest\.mark\.({told['ON_TEST_BEDS'].replace(' or ', '|')})\b")
    looked_in = {FOLDER.parent / name for name in told["WITH_TEST_BEDS"].split()}
    having = {path for path in FOLDER.rglob("test_*.py") if marked.search(path.read_text())}
    assert having != set()
    assert [path for path in having if looked_in.isdisjoint(path.parents)] == []
