"""What prediction reaches on the roads of real maps, where they lie beside the project."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest

from dama.prediction import Blockage, Fix, Predictor
from dama.prediction.habits import TurnCounts
from dama.prediction.paces import RoadPaces
from tests.drives import field
from tests.drives.drive import START_MS
from tests.drives.evaluation import LATEST_MS
from tests.drives.extract import Extract, read_extract, round_of
from tests.drives.kinds import FREE, KINDS, TWICE, UNUSUAL, KnownDrive, again, drives_over
from tests.drives.road_ahead import CERTAIN, TOLD, habits_of, judge_all

_ABSENT = field.missing(*field.EXTRACTS.values())
pytestmark = pytest.mark.skipif(bool(_ABSENT), reason=_ABSENT or "")


@pytest.fixture(scope="module")
def town() -> Extract:
    return read_extract(field.FIELD / field.EXTRACTS["moscow"])


@pytest.fixture(scope="module")
def driven(town: Extract) -> list[KnownDrive]:
    return list(drives_over(town, 2 * len(KINDS), 1_000))


def test_drives_are_of_every_kind_that_the_roads_allow(driven: list[KnownDrive]) -> None:
    assert len({made.kind for made in driven}) >= len(KINDS) - 2
    assert any(made.drive.covered for made in driven)
    assert all(made.drive.fixes for made in driven)


def test_a_drive_is_made_again_from_its_seed(town: Extract, driven: list[KnownDrive]) -> None:
    (same,) = drives_over(town, 1, driven[0].seed)
    assert same.drive == driven[0].drive


def test_each_pass_over_a_way_is_another_drive(town: Extract, driven: list[KnownDrive]) -> None:
    passes = [again(town, driven[0], number).fixes for number in (0, 1, 2, 1)]
    assert passes[1] == passes[3]
    assert len(set(passes)) == 3


@pytest.mark.parametrize("kind", UNUSUAL)
def test_a_drive_of_each_unusual_kind_is_made_and_judged(town: Extract, kind: str) -> None:
    made = list(drives_over(town, 3, 4_000, (kind,)))
    assert [one.kind for one in made] == [kind] * 3
    outcome = judge_all(town, made)[""]
    assert outcome.drives == 3
    assert bool(outcome.entries) == (kind != "car park")


def _fixes_inside(made: KnownDrive) -> list[Fix]:
    return [
        fix
        for stay in made.drive.covered
        for fix in made.drive.fixes
        if stay.entry_ms < fix.time_ms <= stay.exit_ms
    ]


def test_receivers_go_on_without_satellites_or_return_late_by_kind(town: Extract) -> None:
    for kind in ("freezes", "extrapolates"):
        inside = [
            fix for made in drives_over(town, 6, 4_000, (kind,)) for fix in _fixes_inside(made)
        ]
        assert len(inside) >= 10
        repeated = sum(before.place == after.place for before, after in pairwise(inside))
        assert (repeated > len(inside) // 2) == (kind == "freezes")
    for made in drives_over(town, 6, 4_000, ("returns late",)):
        assert not _fixes_inside(made)
        for stay in made.drive.covered:
            assert not any(
                stay.exit_ms < fix.time_ms <= stay.exit_ms + 14_000 for fix in made.drive.fixes
            )


def test_a_ferry_waits_and_then_crosses_where_the_map_has_no_road(town: Extract) -> None:
    for made in drives_over(town, 4, 4_000, ("ferry",)):
        (crossing,) = (n for n, edge in enumerate(made.edges) if edge.id.startswith("ferry:"))
        aboard = [
            fix
            for fix, piece in zip(made.drive.fixes, made.drive.pieces, strict=True)
            if piece == crossing
        ]
        assert made.edges[crossing].id not in made.known
        # 14 km/h, or half as fast again by habit and mood; the wait is 30 s or more.
        length_m = made.edges[crossing].length_m
        assert aboard[-1].time_ms - aboard[0].time_ms > 1000 * (25.0 + length_m / (1.5 * 14 / 3.6))
        assert made.drive.pieces[-1] > crossing


def test_the_shares_of_the_drivers_are_what_they_choose(town: Extract) -> None:
    dice = random.Random(3)
    crossing = max(town.network.edges.values(), key=lambda edge: len(town.steps(edge)))
    chosen = Counter(
        step.id for _ in range(4_000) if (step := town.driven_on(dice, [crossing])) is not None
    )
    shares = {step.id: share for step, share in town.shares([crossing])}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert len(shares) > 2
    for step_id, share in shares.items():
        assert chosen[step_id] / 4_000 == pytest.approx(share, abs=0.02)


def test_with_the_route_known_what_is_told_comes(town: Extract, driven: list[KnownDrive]) -> None:
    outcome = judge_all(town, driven, with_route=True)[""]
    assert outcome.entries >= 8
    assert outcome.knowable_untold == 0
    assert outcome.false_percent(CERTAIN) <= 5.0
    assert outcome.false_percent(TOLD) <= 10.0


def test_of_who_parks_beside_the_way_to_a_portal_nothing_is_told_for_long(town: Extract) -> None:
    parked = list(drives_over(town, 4, 2_000, ("car park",)))
    assert len(parked) >= 3
    for made in parked:
        last = made.drive.fixes[-1]
        standing = [fix for fix in made.drive.fixes if (fix.speed_mps or 0.0) < 1.0]
        assert standing[-1] == last
        predictor = Predictor(made.known)
        for fix in made.drive.fixes:
            predictor.feed(fix)
        assert predictor.blockages(last.time_ms + 90_000) == ()


def test_both_passages_of_one_obstruction_are_told_before_the_first(town: Extract) -> None:
    seen = 0
    for made in drives_over(town, 8, 1_000, TWICE):
        covers = {edge.way.id: town.cover(edge) for edge in made.edges}
        names = [covers[stay.way_id] for stay in made.drive.covered]
        pair = next((n for n, both in enumerate(pairwise(names)) if both[0] == both[1]), None)
        if pair is None:
            continue
        first, second = made.drive.covered[pair : pair + 2]
        predictor = Predictor(made.known, route=made.route)
        told: tuple[Blockage, ...] = ()
        for fix in made.drive.fixes:
            if fix.time_ms <= first.last_fix_ms - LATEST_MS:
                predictor.feed(fix)
                told = predictor.blockages(fix.time_ms)
        of = [one for one in told if one.obstruction_id == names[pair]]
        if not of or second.entry_ms - first.entry_ms > 120_000:
            continue
        seen += 1
        assert len(of) >= 2, made.seed
        for one, stay in zip(of, (first, second), strict=False):
            assert one.confidence >= TOLD
            # A light on the way is not foreseen.
            assert stay.entry_ms >= one.entry_ms - 15_000
    assert seen >= 2


def test_the_second_time_on_a_way_is_as_good_as_the_route(
    town: Extract, driven: list[KnownDrive]
) -> None:
    unknown = judge_all(town, driven)[""]
    again = judge_all(town, driven, driven_before=1)[""]
    assert again.entries >= 8
    assert again.knowable_untold <= 1
    assert again.false_percent(CERTAIN) <= 5.0
    assert again.false_percent(TOLD) <= min(10.0, unknown.false_percent(TOLD))


def test_the_turns_of_many_vehicles_correct_the_map_where_it_is_wrong() -> None:
    town = read_extract(field.FIELD / field.ANDORRA)
    counts = TurnCounts()
    for made in drives_over(town, 160, 5_000, FREE):
        counts.add(habits_of(town.known, [made.drive]), 0, town.known.turn)
    turned = town.known.turned(counts)
    wrong = wrong_before = wrong_after = 0.0
    right = right_after = by_chance = 0.0
    for road_id in counts:
        driven = [town.network.edges[road_id]]
        shares = town.shares(driven)
        seen = sum(counts.of(road_id).values())
        # In a roundabout it depends on where one has come from.
        if seen < 4 or len(shares) < 2 or round_of(driven):
            continue
        before = [abs((town.known.turn(road_id, step.id) or 0.0) - part) for step, part in shares]
        after = [abs((turned.turn(road_id, step.id) or 0.0) - part) for step, part in shares]
        if max(before) > 0.1:
            wrong += 1
            wrong_before += seen * sum(before)
            wrong_after += seen * sum(after)
        else:
            right += 1
            right_after += sum(after)
            # So few counts err so much (standard deviation), though all is right.
            by_chance += sum(math.sqrt(part * (1.0 - part) / seen) for _, part in shares)
    assert wrong >= 10
    assert right >= 40
    assert wrong_after < 0.75 * wrong_before
    assert right_after < by_chance


def test_no_road_leads_into_an_obstruction_more_than_surely() -> None:
    known = read_extract(field.FIELD / field.ANDORRA).known
    sums: defaultdict[tuple[str, str, int], float] = defaultdict(float)
    roads = {road.id for one in known.obstructions.values() for road in one.roads}
    for road_id in roads:
        for passage in known.ahead(road_id):
            sums[road_id, passage.obstruction_id, passage.number] += passage.probability
    assert len(sums) > 500
    assert max(sums.values()) <= 1.0 + 1e-9


def test_paces_of_others_tell_when_a_portal_comes_in_rush_hour(town: Extract) -> None:
    paces = RoadPaces(START_MS)
    for made in drives_over(town, 60, 200_000, FREE, in_rush_hour=True):
        paces.add(habits_of(town.known, [made.drive]))
    paced = town.known.paced(paces)
    rush = list(drives_over(town, 40, 3_000, FREE, in_rush_hour=True))
    by_map = judge_all(town, rush)[""].free_s
    learned = judge_all(town, [replace(one, known=paced) for one in rush])[""].free_s
    assert len(learned) >= 8
    assert fmean(learned) < fmean(by_map)
