"""The times with which a blockage is planned, of those possible."""

from __future__ import annotations

import pytest
from underpass_control.planning import expected
from underpass_control.planning.expected import Expectations, Planned

from dama.prediction import Blockage, Span
from dama.prediction.same import is_same

NOW_MS = 100_000


def said(
    entry_ms: tuple[int, int, int], exit_ms: tuple[int, int, int], now_ms: int = NOW_MS
) -> Blockage:
    """Return a prediction with these quantiles of entry and exit: 0.1, the median, 0.9."""
    within = (entry_ms[0], entry_ms[2]), (exit_ms[0], exit_ms[2])
    return Blockage("tunnel", entry_ms[1], exit_ms[1], 0.9, now_ms, "predicted", *within)


def planned_with(*blockages: Blockage) -> list[tuple[int, int]]:
    expectations = Expectations()
    expectations.take(1, blockages, NOW_MS)
    return [(one.entry_ms, one.exit_ms) for one in expectations.blockages(NOW_MS, Planned())]


def test_a_vehicle_is_planned_as_blocked_from_its_earliest_entry() -> None:
    ahead = said((126_000, 130_000, 134_000), (144_000, 150_000, 156_000))
    assert planned_with(ahead) == [(126_000, 150_000)]


def test_a_tunnel_that_may_last_longer_is_lent_for_as_longer() -> None:
    ahead = said((126_000, 130_000, 134_000), (144_000, 150_000, 166_000))
    assert planned_with(ahead) == [(126_000, 158_000)]


def test_a_light_on_the_way_is_not_lent_for() -> None:
    # The vehicle may stand for a minute; then entry and exit are a minute later.
    ahead = said((128_000, 130_000, 190_000), (147_000, 150_000, 211_000))
    assert planned_with(ahead) == [(128_000, 150_000)]


def test_inside_it_is_planned_as_blocked_until_its_latest_exit() -> None:
    inside = said((95_000, 95_000, 95_000), (110_000, 115_000, 122_000))
    assert planned_with(inside) == [(95_000, 122_000)]


def test_nobody_waits_for_a_shadow_longer_than_it_lasts() -> None:
    ahead = said((126_000, 130_000, 134_000), (126_500, 130_500, 134_500))
    assert planned_with(ahead) == [(129_500, 130_500)]


def test_what_is_said_without_quantiles_is_planned_with_as_it_is() -> None:
    assert planned_with(Blockage(None, 130_000, 150_000, 1.0, NOW_MS, "announced")) == [
        (130_000, 150_000)
    ]


def test_what_is_missing_once_the_clock_was_set_back_is_gone() -> None:
    expectations = Expectations()
    expectations.take(1, [Blockage("tunnel", 130_000, 150_000, 0.9, NOW_MS)], NOW_MS)
    assert expectations.take(1, [], NOW_MS - 20)
    assert not expectations.take(1, [], NOW_MS - 60_000)


def test_two_passages_of_one_obstruction_stay_apart_from_fix_to_fix() -> None:
    expectations = Expectations()
    for now_ms in range(NOW_MS, NOW_MS + 45_000, 1_000):
        first = Blockage("tunnel", 130_000, 140_000, 0.9, now_ms)
        second = Blockage("tunnel", 160_000, 170_000, 0.8, now_ms)
        expectations.take(1, (first, second) if now_ms < 140_000 else (second,), now_ms)
        ahead = expectations.blockages(now_ms, Planned())
        assert [(one.entry_ms, one.exit_ms) for one in ahead] == [
            (one.entry_ms, one.exit_ms) for one in (first, second) if one.exit_ms > now_ms
        ]


def test_two_passages_stay_apart_when_a_stop_moves_the_first_to_where_the_second_was() -> None:
    expectations = Expectations()

    def passages(later_ms: int, now_ms: int) -> list[Blockage]:
        return [
            Blockage("tunnel", begin + later_ms, begin + later_ms + 20_000, confidence, now_ms)
            for begin, confidence in ((160_000, 0.9), (300_000, 0.6))
        ]

    expectations.take(1, passages(0, NOW_MS), NOW_MS)
    expectations.take(1, passages(140_000, NOW_MS + 1_000), NOW_MS + 1_000)
    (first, second) = expectations.blockages(NOW_MS + 1_000, Planned())
    assert (first.entry_ms, second.entry_ms) == (300_000, 440_000)
    # Each keeps its confidence, so neither was mistaken for the other.
    assert (first.confidence, second.confidence) == (0.9, 0.6)


@pytest.mark.parametrize("lasting_ms", [900, 12_000])
def test_each_of_many_blockages_is_compared_with_its_neighbours_alone(
    monkeypatch: pytest.MonkeyPatch, lasting_ms: int
) -> None:
    compared = 0

    def counted(one: Span, other: Span, now_ms: int) -> bool:
        nonlocal compared
        compared += 1
        return is_same(one, other, now_ms)

    monkeypatch.setattr(expected, "is_same", counted)
    counts = []
    for houses in (30, 300):
        entries_ms = range(NOW_MS + 1_000, NOW_MS + 1_000 + 2_500 * houses, 2_500)
        street = [Blockage(None, ms, ms + lasting_ms, 0.9, NOW_MS) for ms in entries_ms]
        expectations = Expectations()
        expectations.take(1, street, NOW_MS)
        now = expectations.blockages(NOW_MS, Planned())
        planned = Planned(now)
        compared = 0
        assert not planned.appeared_or_vanished(now, NOW_MS)
        assert not planned.moved(now, NOW_MS)
        assert expectations.blockages(NOW_MS, planned) == now
        assert planned.appeared_or_vanished(now[1:], NOW_MS)
        assert Planned(now[:-1]).appeared_or_vanished(now, NOW_MS)
        counts.append(compared)
    assert counts[1] <= 12 * counts[0]
