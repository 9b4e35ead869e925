"""What prediction reaches, along the synthetic drives and along the recorded one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest
from underpass_control.prediction import Predictions

from dama.prediction import Fix, ObstructionMap, Predictor
from dama.prediction.learning import Learned, learn, observe
from dama.prediction.places import distance_m
from tests.drives import field
from tests.drives.drive import Receiver
from tests.drives.evaluation import Entry, Score, held_along, score
from tests.drives.island import PLANE
from tests.drives.synthetic import drives, entries_of, island_map, passage_of, score_drives

_NO_DRIVE = field.missing_drive()
recorded_drive = pytest.mark.skipif(bool(_NO_DRIVE), reason=_NO_DRIVE or "")


@pytest.fixture(scope="module")
def synthetic() -> Score:
    return score_drives(100)


def test_entries_are_predicted_30_s_ahead_within_2_s(synthetic: Score) -> None:
    assert len(synthetic.errors_s) >= 40
    assert statistics.median(synthetic.errors_s) <= 2.0


def test_no_entry_is_missed(synthetic: Score) -> None:
    assert synthetic.missed == []


def test_at_most_one_prediction_in_twenty_is_false(synthetic: Score) -> None:
    assert synthetic.predicted >= 50
    assert synthetic.false_percent <= 5.0
    # One driver in eight turns off at a junction, and only then it shows.
    assert synthetic.false_percent + synthetic.withdrawn_percent <= 12.5


def test_a_known_route_leaves_nothing_false() -> None:
    island = island_map()
    total = Score()
    for drive in drives(40):
        if drive.covered or drive.u_turned:
            route = tuple(PLANE.position(*point) for point in drive.route[::4])
            total.add(score(island, drive.fixes, entries_of(drive, island), route))
    assert total.predicted >= 15
    assert total.false == total.withdrawn == []
    assert total.missed == []


def test_stops_without_fix_are_neither_entries_nor_learned() -> None:
    nothing = ObstructionMap([])
    stops = 0
    for drive in drives(40):
        for begin_ms, end_ms in drive.blind_stops_ms:
            predictor = Predictor(nothing)
            for fix in drive.fixes:
                predictor.feed(fix)
                if fix.time_ms > end_ms + 20_000:
                    break
            stops += 1
            assert observe(predictor.track, begin_ms, end_ms) is None
    assert stops >= 5


def test_blockages_of_a_first_drive_are_predicted_on_the_next_without_a_map() -> None:
    island = island_map()
    errors, missed = [], 0
    learning = [drive for drive in drives(60) if drive.covered and not drive.u_turned]
    for drive in learning:
        known = _learned_along(drive.fixes, [(c.last_fix_ms, c.exit_ms) for c in drive.covered])
        obstructions = ObstructionMap([place.obstruction for place in known])
        names = {place.axis[0]: place.id for place in known}
        entries = []
        for entry in entries_of(drive, island):
            fix = next(f for f in drive.fixes if f.time_ms == entry.time_ms)
            near = [name for place, name in names.items() if distance_m(place, fix.place) < 80.0]
            entries += [Entry(name, entry.time_ms) for name in near]
        result = score(obstructions, drive.fixes, entries)
        errors += result.errors_s
        missed += len(result.missed)
    assert len(errors) >= 15
    # Without a map there are no speed limits to expect.
    assert statistics.median(errors) <= 4.0
    assert missed == 0


@pytest.mark.parametrize("receiver", [Receiver(freezes_s=60.0), Receiver(runs_on_s=30.0)])
def test_a_receiver_that_goes_on_in_a_tunnel_teaches_the_same_place(receiver: Receiver) -> None:
    places = []
    for said_by in (None, receiver):
        made = passage_of("Ridge Road", lead_m=800.0, tail_m=600.0, receiver=said_by)
        [stay] = made.covered
        [place] = _learned_along(made.fixes, [(stay.last_fix_ms, stay.exit_ms)])
        places.append(place)
    plain, seen = places
    assert distance_m(plain.axis[0], seen.axis[0]) < 10.0
    # Where nothing was said, the exit is where the receiver came back, a second or two later.
    assert distance_m(plain.axis[-1], seen.axis[-1]) < 40.0


@pytest.mark.parametrize("name", ["A1 east", "A1 west", "Main Street", "Pass Road", "Ridge Road"])
def test_ten_passes_teach_where_a_cover_begins_and_ends_to_10_m(name: str) -> None:
    island = island_map()
    known: tuple[Learned, ...] = ()
    for seed in range(10):
        made = passage_of(name, lead_m=800.0, tail_m=600.0, seed=seed)
        [stay] = made.covered
        # Losses are judged some seconds later, when others have had time to tell theirs.
        losses = [(stay.entry_ms, stay.exit_ms)]
        known = _learned_along(made.fixes, losses, known, judged_after_ms=10_000)
    [place] = known
    assert place.lost == 10
    covers = [road.line for one in island.obstructions.values() for road in one.covered]
    assert min(distance_m(line[0], place.axis[0]) for line in covers) < 10.0
    assert min(distance_m(line[-1], place.axis[-1]) for line in covers) < 10.0


def test_hours_of_drives_through_what_is_on_the_map_and_of_stops_teach_no_place() -> None:
    island = island_map()
    driven_ms = 0
    for made in drives(60):
        known = Predictions()
        known.set_map(island)
        losses = [(stay.entry_ms, stay.exit_ms) for stay in made.covered]
        losses = sorted([*losses, *made.blind_stops_ms])
        for fix in made.fixes:
            while losses and fix.time_ms > losses[0][1]:
                lost_ms, restored_ms = losses.pop(0)
                known.observe(1, lost_ms, None)
                known.observe(1, lost_ms, restored_ms)
            known.feed(1, fix)
        assert known.lessons() == []
        driven_ms += made.fixes[-1].time_ms - made.fixes[0].time_ms
    assert driven_ms > 8 * 3_600_000


def _learned_along(
    fixes: Sequence[Fix],
    losses: Sequence[tuple[int, int]],
    known: tuple[Learned, ...] = (),
    *,
    judged_after_ms: int = 0,
) -> tuple[Learned, ...]:
    predictor = Predictor(ObstructionMap([place.obstruction for place in known]))
    left = list(losses)
    for fix in fixes:
        if predictor.feed(fix) and left and fix.time_ms > left[0][1] + judged_after_ms:
            lost_ms, restored_ms = left.pop(0)
            seen = observe(predictor.track, lost_ms, restored_ms)
            if seen is not None:
                known = learn(known, seen, predictor.map, new_id=f"learned:{lost_ms}")
    return known


@recorded_drive
def test_the_recorded_drives_tunnels_are_predicted_in_time() -> None:
    drive = field.recorded()
    result = score(ObstructionMap(drive.obstructions), drive.fixes, drive.entries)
    assert len(result.errors_s) == 4
    assert statistics.median(result.errors_s) <= 2.0
    assert result.missed == []
    assert result.false == []


@recorded_drive
def test_the_recorded_drives_stops_are_neither_predicted_nor_learned() -> None:
    drive = field.recorded()
    losses = [(a.time_ms, b.time_ms) for a, b in drive.stops]
    assert len(losses) == 2
    assert _learned_along(drive.fixes, losses) == ()
    held = held_along(Predictor(ObstructionMap(drive.obstructions)), drive.fixes)
    for lost_ms, restored_ms in losses:
        assert not any(
            h.blockage.entry_ms <= restored_ms and lost_ms <= h.blockage.exit_ms for h in held
        )


@recorded_drive
def test_the_recorded_drives_tunnels_are_learned_from_the_losses_of_link() -> None:
    drive = field.recorded()
    fixes = {fix.time_ms: n for n, fix in enumerate(drive.fixes)}
    losses = [
        (entry.time_ms, drive.fixes[fixes[entry.time_ms] + 1].time_ms) for entry in drive.entries
    ]
    known = _learned_along(drive.fixes, losses)
    assert len(known) == 4
    for place, obstruction in zip(known, drive.obstructions, strict=True):
        axis = obstruction.covered[0].line
        assert distance_m(place.axis[0], axis[0]) < 5.0
        assert distance_m(place.axis[-1], axis[-1]) < 5.0


def test_a_passage_is_predicted_and_nothing_beyond_it() -> None:
    made = passage_of("Ridge Road", lead_m=800.0, tail_m=250.0)
    known = island_map()
    total = score(known, made.fixes, entries_of(made, known))
    assert len(total.errors_s) == 1
    assert total.missed == []
    assert total.false == total.withdrawn == []
    [stay] = made.covered
    assert stay.exit_ms < made.fixes[-1].time_ms
