"""Fixes that come after later ones, as those of a blockage do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import pytest
from underpass_control.planning.knowledge import Knowledge
from underpass_control.prediction import Predictions
from underpass_control.storage.positions import Position, _told

from dama.prediction import Fix, ObstructionMap, Predictor
from tests.dama.prediction.test_laws import MAP, START_MS, fix

VAN = 10
LOST_S, BACK_S = 30, 60


def ms(second: float) -> int:
    return START_MS + round(1000 * second)


def round_a_corner(second: int) -> Fix:
    """Return the fix of a vehicle that drives east, and from the 45th second on north."""
    if second <= 45:
        return fix(second, -900.0 + 15.0 * second, 2_000.0, 15.0)
    return fix(second, -225.0, 2_000.0 + 15.0 * (second - 45), 15.0, 0.0)


def along_the_road(second: int) -> Fix:
    return fix(second, -1_900.0 + 15.0 * second, 0.0, 15.0)


def after_a_blockage(until: int) -> Iterable[int]:
    """Yield seconds in the order in which their fixes come: the newest, the next ones, the rest."""
    yield from (*range(LOST_S + 1), BACK_S, BACK_S + 1)
    # In batches, which need not be in order.
    yield from (*range(46, BACK_S), *range(LOST_S + 1, 46))
    yield from range(BACK_S + 2, until)


def test_after_a_blockage_predictions_are_those_of_fixes_in_order() -> None:
    made, ordered = Predictions(MAP), Predictions(MAP)
    for second in after_a_blockage(90):
        made.feed(VAN, along_the_road(second))
    for second in range(90):
        ordered.feed(VAN, along_the_road(second))
    expected = ordered.blockages_of(VAN, ms(89))
    assert len(expected) == 1
    assert made.blockages_of(VAN, ms(89)) == expected
    assert made._terminals[VAN].predictor.track == ordered._terminals[VAN].predictor.track


def test_late_fixes_count_as_soon_as_they_have_come() -> None:
    made, ordered = Predictions(MAP), Predictions(MAP)
    for second in range(BACK_S + 1):
        ordered.feed(VAN, along_the_road(second))
    for second in (*range(LOST_S + 1), BACK_S):
        made.feed(VAN, along_the_road(second))
    before = made.blockages_of(VAN, ms(BACK_S))
    late = [made.feed(VAN, along_the_road(second)) for second in range(LOST_S + 1, BACK_S)]
    assert all(late)
    expected = ordered.blockages_of(VAN, ms(BACK_S))
    assert before != expected
    assert made.blockages_of(VAN, ms(BACK_S)) == expected


def test_a_place_is_learned_along_the_way_that_was_driven() -> None:
    lessons = []
    for seconds in (after_a_blockage(90), range(90)):
        made = Predictions(ObstructionMap([]))
        for second in seconds:
            made.feed(VAN, round_a_corner(second))
            if second == BACK_S + 1:
                made.observe(VAN, ms(LOST_S), ms(BACK_S))
        lessons.append(made.lessons())
    late, in_order = lessons
    assert late == in_order
    (lesson,) = late
    assert lesson.seen is not None
    # By the corner, not straight across.
    assert len(lesson.seen.axis) > 10


def test_fixes_before_the_first_one_count_too() -> None:
    made, ordered = Predictions(MAP), Predictions(MAP)
    for second in (60, *range(30, 60)):
        made.feed(VAN, along_the_road(second))
    for second in range(30, 61):
        ordered.feed(VAN, along_the_road(second))
    assert made.blockages_of(VAN, ms(60)) == ordered.blockages_of(VAN, ms(60)) != ()


def test_late_fixes_of_another_place_or_of_long_ago_are_ignored() -> None:
    made = Predictions(MAP)
    for second in (*range(31), *range(60, 250)):
        made.feed(VAN, along_the_road(second))
        if second == 60:
            assert not made.feed(VAN, fix(45, 0.0, 50_000.0, 15.0))
            assert not made.feed(VAN, along_the_road(20))
            assert made.feed(VAN, along_the_road(45))
    assert not made.feed(VAN, along_the_road(46))


def test_what_waits_together_is_taken_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def feed(_: Predictions, terminal: int, one: Fix) -> bool:
        found.append(one.time_ms)
        return terminal == VAN

    monkeypatch.setattr(Predictions, "feed", feed)
    knowledge = Knowledge("beam")
    knowledge.set_nodes(frozenset({VAN}))
    for second in (60, *range(60)):
        for change in _told([Position(VAN, ms(second), 7.5, 46.5)]):
            knowledge.take("positions", json.loads(json.dumps(change)))
    asyncio.run(knowledge.feed(ms(60)))
    assert found == [ms(second) for second in range(61)]


def test_late_fixes_one_by_one_cost_no_more_than_a_few_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = 0
    feed = Predictor.feed

    def counted(self: Predictor, one: Fix) -> bool:
        nonlocal fed
        fed += 1
        return feed(self, one)

    monkeypatch.setattr(Predictor, "feed", counted)
    made = Predictions(MAP)
    came = 0
    for begin in range(0, 2_000, 400):
        for second in (begin, *range(begin + 200, begin + 350)):
            made.feed(VAN, along_the_road(second))
            came += 1
        for second in range(begin + 1, begin + 200):
            # Also the same one again, and each with a question after it.
            for _ in range(2):
                made.feed(VAN, along_the_road(second))
                made.blockages_of(VAN, ms(begin + 350))
                came += 1
    assert came < fed <= 5 * came
    held = made._terminals[VAN].in_order
    assert max(len(held._gaps), len(held._since), len(held._late)) <= 256
