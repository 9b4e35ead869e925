"""Each claim of conformance has the test that it names, or its reason."""

from __future__ import annotations

import pytest

from tests.conformance.claims import ROOT, VERDICTS, claims, exists, known_tests, named

_PAGES = ["docs/conformance.md", "docs/bundle-security.md"]


@pytest.mark.parametrize("page", _PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    known = known_tests()
    names = named((ROOT / page).read_text(encoding="utf-8"))
    assert len(names) > 20
    assert [name for name in names if not exists(name, known)] == []


def test_nothing_is_held_without_a_test_nor_missing_without_a_reason() -> None:
    rows = list(claims((ROOT / _PAGES[0]).read_text(encoding="utf-8")))
    assert len(rows) > 60
    assert [row.asked for row in rows if row.verdict not in VERDICTS] == []
    assert [row.asked for row in rows if row.verdict == "held" and not row.tests] == []
    reasons = [row for row in rows if row.verdict != "held"]
    assert [row.asked for row in reasons if len(row.words.split()) < 8] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    known = known_tests()
    assert exists("clauses::a_bundle_at_its_hop_limit_goes_no_further", known)
    assert exists("rules::*", known)
    # A function that is no test, one of another file, and a file that is none.
    for name in ["clauses::relay", "hops::a_bundle_at_its_hop_limit_goes_no_further", "none::*"]:
        assert not exists(name, known)
    page = "| clause | what | held | test |\n|---|---|---|---|\n| 1 | x | held | says so |\n"
    (row,) = claims(page)
    assert (row.asked, row.verdict, row.tests) == ("x", "held", [])
