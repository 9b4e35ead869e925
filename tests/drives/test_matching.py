"""How matches are judged, and what the predictor's matcher reaches on the roads of a real map."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dama.prediction.places import Course
from tests.drives import field
from tests.drives.extract import Extract, read_extract
from tests.drives.kinds import KnownDrive, drives_over
from tests.drives.matching import Match, judge, judge_all, matches_of_predictor

_ABSENT = field.missing(*field.EXTRACTS.values())
pytestmark = pytest.mark.skipif(bool(_ABSENT), reason=_ABSENT or "")


@pytest.fixture(scope="module")
def town() -> Extract:
    return read_extract(field.FIELD / field.EXTRACTS["moscow"])


@pytest.fixture(scope="module")
def driven(town: Extract) -> list[KnownDrive]:
    return list(drives_over(town, 12, 3_000, ("through", "light", "junction inside")))


def _true(made: KnownDrive) -> list[Match | None]:
    """Return the ways that were driven, fix by fix."""
    found: list[Match | None] = []
    for fix, piece in zip(made.drive.fixes, made.drive.pieces, strict=True):
        edge = made.edges[piece]
        foot = Course(edge.line).foot(fix.place, 0, len(edge.line) - 1)
        found.append(Match(edge.way.id, foot.heading_deg))
    return found


def test_the_truth_is_right_everywhere(town: Extract, driven: list[KnownDrive]) -> None:
    matched = judge_all(town, [(made, _true(made)) for made in driven])
    assert matched.fixes > 500
    assert matched.junctions > 20
    assert matched.right_percent == matched.junctions_percent == 100.0


def test_against_the_direction_is_wrong(town: Extract, driven: list[KnownDrive]) -> None:
    for made in driven[:3]:
        turned = [
            match and match._replace(heading_deg=(match.heading_deg + 180.0) % 360.0)
            for match in _true(made)
        ]
        assert judge(town, made, turned).right <= 0.1 * len(turned)


def test_no_match_is_wrong(town: Extract, driven: list[KnownDrive]) -> None:
    matched = judge(town, driven[0], [None] * len(driven[0].drive.fixes))
    assert matched.fixes > 0
    assert matched.right == matched.junctions_right == 0


def test_fixes_off_the_map_do_not_count(town: Extract, driven: list[KnownDrive]) -> None:
    nowhere = replace(driven[0], known=type(town.known)([]))
    assert judge(town, nowhere, _true(driven[0])).fixes == 0


def test_nine_fixes_of_ten_are_matched_to_the_road_driven(
    town: Extract, driven: list[KnownDrive]
) -> None:
    matched = judge_all(town, [(made, matches_of_predictor(made)[0]) for made in driven])
    assert matched.right_percent >= 90.0
    assert matched.junctions_percent >= 85.0
