"""Expected and observed blockages: stored, compared, learned from, and recalled."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select
from underpass_control.demand import Demands
from underpass_control.planning.knowledge import Knowledge
from underpass_control.prediction import Lesson, Predictions
from underpass_control.storage import blockages, expectations, learned, positions, routes
from underpass_control.storage.expectations import Kept
from underpass_control.storage.models import Obstruction, PredictedBlockage
from underpass_control.takeover import recall

from dama.planner import Link
from dama.prediction import Blockage, Fix
from dama.prediction.geojson import to_geojson
from dama.prediction.learning import Learned, Observation
from dama.prediction.places import Line
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_positions import moment, position
from tests.control_api.service.test_positions import report as report_positions
from tests.control_api.service.test_reports import HUB, entry, link, report, status, taken
from tests.dama.prediction.test_laws import MAP, START_MS, eastwards, line

AXIS = line((0.0, 0.0), (600.0, 0.0))
APPROACH = line((-900.0, 0.0), (-300.0, 10.0), (0.0, 0.0))
PLACE = Learned("learned:00000000000000aa", APPROACH, AXIS)
LOSS, HELD = Lesson(PLACE.id, Observation(APPROACH, AXIS)), Lesson(PLACE.id, None)


def keep(api: Api, at_ms: int, *blockages: Blockage, terminal: int = FIRST) -> Kept:
    async def run() -> Kept:
        async with api.changes.transaction() as (connection, publish):
            return await expectations.keep(
                connection, publish, "ku-1", {terminal: blockages}, at_ms
            )

    return api.run(run())


def kept(api: Api) -> list[Any]:
    async def run() -> Sequence[Any]:
        async with api.database.reading() as connection:
            query = select(PredictedBlockage.__table__).order_by(PredictedBlockage.id)
            return (await connection.execute(query)).all()

    return list(api.run(run()))


def expected(entry_ms: int, *, name: str | None = "ridge") -> Blockage:
    return Blockage(name, entry_ms, entry_ms + 20_000, 0.9, entry_ms - 60_000)


def observed(entry_ms: int, exit_ms: int | None = None, **members: object) -> dict[str, object]:
    made = report(
        "blockage",
        terminal=FIRST,
        path="satellite",
        direction="return",
        entry_ms=entry_ms,
        source="modem",
    )
    return entry({**made, **({} if exit_ms is None else {"exit_ms": exit_ms}), **members})


def test_an_expectation_is_one_row_until_it_has_come(api: Api) -> None:
    at = now_ms() - 100_000
    assert keep(api, at, expected(at + 60_000)) == Kept(1, 0, 0, 0)
    assert keep(api, at + 1_000, expected(at + 60_050)) == Kept(0, 0, 0, 0)
    assert keep(api, at + 2_000, expected(at + 64_000)) == Kept(0, 1, 0, 0)
    # From the entry on, the expectation stays unchanged.
    assert keep(api, at + 65_000, expected(at + 63_000)) == Kept(0, 0, 0, 0)
    assert keep(api, at + 90_000) == Kept(0, 0, 1, 0)
    (row,) = kept(api)
    assert (row.entry_ms, row.first_ms, row.state) == (at + 64_000, at, "passed")


def test_how_surely_its_times_are_known_is_kept_and_shown(api: Api) -> None:
    at = now_ms()
    told = replace(
        expected(at + 60_000),
        entry_within_ms=(at + 55_000, at + 70_000),
        exit_within_ms=(at + 72_000, at + 95_000),
    )
    keep(api, at, told)
    closer = replace(told, entry_within_ms=(at + 58_000, at + 63_000))
    assert keep(api, at + 1_000, closer) == Kept(0, 1, 0, 0)
    assert keep(api, at + 2_000, closer) == Kept(0, 0, 0, 0)
    (shown,) = api.get("/v1/blockages?terminal=11").json["blockages"]
    assert (shown["entry_p10"], shown["entry_p90"]) == (moment(at + 58_000), moment(at + 63_000))
    assert (shown["exit_p10"], shown["exit_p90"]) == (moment(at + 72_000), moment(at + 95_000))
    keep(api, at + 3_000, expected(at + 60_000))
    (shown,) = api.get("/v1/blockages?terminal=11").json["blockages"]
    assert "entry_p10" not in shown


def test_what_is_not_expected_any_more_is_withdrawn(api: Api) -> None:
    at = now_ms()
    keep(api, at, expected(at + 60_000), expected(at + 200_000, name="valley"))
    assert keep(api, at + 5_000, expected(at + 200_000, name="valley")) == Kept(0, 0, 0, 1)
    assert [(row.obstruction, row.state) for row in kept(api)] == [
        ("ridge", "withdrawn"),
        ("valley", "predicted"),
    ]


def test_of_a_terminal_that_has_left_the_beam_nothing_is_kept(api: Api) -> None:
    at = now_ms()

    async def run() -> Kept:
        said = {FIRST: (expected(at + 60_000),), SECOND: (expected(at + 70_000),)}
        async with api.changes.transaction() as (connection, publish):
            return await expectations.keep(connection, publish, "ku-1", said, at)

    assert api.call("DELETE", f"/v1/terminals/{FIRST}").status == 204
    assert api.run(run()) == Kept(1, 0, 0, 0)
    assert [row.terminal for row in kept(api)] == [SECOND]
    # The terminal is back, in another beam.
    other = {"name": "Ku 2", "forward_capacity_bps": 1_000_000, "return_capacity_bps": 1_000_000}
    assert api.call("PUT", "/v1/beams/ku-2", other).status == 201
    moved = {"beam": "ku-2", "name": "moved"}
    assert api.call("PUT", f"/v1/terminals/{FIRST}", moved).status == 201
    assert api.run(run()) == Kept(0, 0, 0, 0)
    assert [row.terminal for row in kept(api)] == [SECOND]


def test_two_passages_of_one_obstruction_are_two_rows(api: Api) -> None:
    at = now_ms()
    assert keep(api, at, expected(at + 60_000), expected(at + 110_000)) == Kept(2, 0, 0, 0)
    moved = expected(at + 61_000), expected(at + 112_000)
    assert keep(api, at + 1_000, *moved) == Kept(0, 2, 0, 0)
    assert keep(api, at + 85_000, expected(at + 112_000)) == Kept(0, 0, 1, 0)
    assert keep(api, at + 140_000) == Kept(0, 0, 1, 0)
    assert [(row.entry_ms - at, row.state) for row in kept(api)] == [
        (61_000, "passed"),
        (112_000, "passed"),
    ]


def test_an_announcement_and_a_prediction_of_it_are_one_row(api: Api) -> None:
    at = now_ms()
    keep(api, at, replace(expected(at + 60_000, name=None), source="announced"))
    assert keep(api, at + 1_000, expected(at + 65_000)) == Kept(0, 1, 0, 0)
    (row,) = kept(api)
    assert (row.obstruction, row.source) == ("ridge", "predicted")


def test_an_observed_blockage_names_the_one_that_was_expected(api: Api) -> None:
    at = now_ms() - 60_000
    keep(api, at - 50_000, expected(at + 2_000), expected(at + 300_000, name="valley"))
    taken(api, observed(at))
    taken(api, observed(at, at + 17_000))
    (found,) = api.get("/v1/blockages?state=observed").json["blockages"]
    (row, _) = kept(api)
    assert found == {
        "state": "observed",
        "terminal": FIRST,
        "link": "return",
        "path": "satellite",
        "entry": moment(at),
        "exit": moment(at + 17_000),
        "source": "modem",
        "predicted": row.id,
        "entry_error_ms": 2_000,
        "exit_error_ms": 5_000,
    }
    metrics = api.get("/metrics").text
    assert 'underpass_control_blockages_total{link="return",predicted="yes"} 1.0' in metrics
    assert "underpass_control_blockage_entry_error_seconds_sum 2.0" in metrics
    assert "underpass_control_blockage_exit_error_seconds_sum 5.0" in metrics


def test_what_was_expected_between_two_that_are_told_together_is_not_read(api: Api) -> None:
    at, day_ms = now_ms() - 60 * 86_400_000, 86_400_000
    entries = [at, at + 30 * day_ms, at + 60 * day_ms]
    for entry_ms in entries:
        keep(api, entry_ms - 60_000, expected(entry_ms))
        keep(api, entry_ms + 30_000)
    told = [
        blockages.Observed(
            FIRST, "return", "satellite", entry_ms, entry_ms + 20_000, True, "modem", at
        )
        for entry_ms in (entries[0], entries[2], *range(at, at + 200_000, 1_000))
    ]

    async def run() -> dict[int, list[Any]]:
        async with api.database.reading() as connection:
            return await blockages._expected(connection, told)

    (found,) = api.run(run()).values()
    assert sorted(row.entry_ms for row in found) == [entries[0], entries[2]]


def test_an_observed_blockage_that_nobody_expected_says_so(api: Api) -> None:
    at = now_ms() - 60_000
    keep(api, at, expected(at + 100_000))
    taken(api, observed(at, at + 3_000))
    (found,) = api.get("/v1/blockages?state=observed").json["blockages"]
    assert "predicted" not in found
    assert "entry_error_ms" not in found
    metrics = api.get("/metrics").text
    assert 'underpass_control_blockages_total{link="return",predicted="no"} 1.0' in metrics


def test_holding_back_by_plan_fulfils_nothing(api: Api) -> None:
    at = now_ms() - 60_000
    keep(api, at - 50_000, expected(at))
    taken(api, observed(at, at + 20_000, source="plan"))
    (found,) = api.get("/v1/blockages?state=observed").json["blockages"]
    assert "predicted" not in found


def test_a_loss_of_another_path_than_the_beams_tells_nothing_of_the_beam(api: Api) -> None:
    at = now_ms() - 60_000
    keep(api, at - 50_000, expected(at + 2_000))
    taken(api, entry(status(link(path="lte"), link(plan_version=3))))
    taken(api, observed(at, path="lte"))
    assert not recalled(api, at + 10_000)[0].is_blocked(FIRST)
    taken(api, observed(at))
    assert recalled(api, at + 10_000)[0].is_blocked(FIRST)
    found = api.get("/v1/blockages?state=observed").json["blockages"]
    assert {one["path"]: "predicted" in one for one in found} == {"lte": False, "satellite": True}


def test_planners_are_told_which_losses_are_of_other_paths() -> None:
    at = now_ms()
    lte = blockages.Observed(FIRST, "return", "lte", at, None, False, "probing", at)
    both = [lte, replace(lte, path="satellite")]

    def sensed(beam_paths: blockages.BeamPaths) -> list[tuple[int, int, int | None]]:
        changes = blockages.changes_of(both, beam_paths)
        return [loss for change in changes for loss in blockages.sensed(change)]

    assert sensed({(FIRST, "return"): "satellite"}) == [(FIRST, at, None)]
    assert sensed({}) == [(FIRST, at, None)] * 2


def test_planners_are_told_when_nodes_only_held_back() -> None:
    at = now_ms()
    lost = blockages.Observed(FIRST, "return", "satellite", at, at + 900, True, "probing", at)
    planned = replace(lost, source="plan")
    both = [
        lost,
        planned,
        replace(planned, source="operator", exit_ms=None),
        replace(planned, path="lte"),
    ]
    changes = blockages.changes_of(both, {(FIRST, "return"): "satellite"})
    assert [one for change in changes for one in blockages.held_back(change)] == [
        (FIRST, at, at + 900, True),
        (FIRST, at, None, False),
    ]


def test_a_blockage_whose_end_nobody_reports_is_over_once_the_link_is_up(api: Api) -> None:
    at = now_ms() - 60_000
    taken(api, observed(at))

    def ends() -> list[str]:
        found = api.get("/v1/blockages").json["blockages"]
        return [one["exit"] for one in found if "exit" in one]

    clock = {"synchronised": True}
    taken(api, entry(status(link(), time_ms=at - 1_000, **clock)))
    taken(api, entry(status(link(state="blocked"), time_ms=at + 5_000, **clock)))
    assert ends() == []
    taken(api, entry(status(link(), time_ms=at + 20_000, **clock)))
    assert ends() == [moment(at + 20_000)]
    # The node's own report of the end counts, and stays.
    taken(api, observed(at, at + 19_000))
    taken(api, observed(at), observed(at, at + 25_000))
    assert ends() == [moment(at + 19_000)]


def learn(api: Api, *lessons: Lesson) -> tuple[list[str], dict[str, Learned]]:
    async def run() -> tuple[list[str], dict[str, Learned]]:
        async with api.changes.transaction() as (connection, publish):
            await learned.put(connection, publish, lessons)
        async with api.database.reading() as connection:
            found, places = await learned.load_map(connection)
            return sorted(found.obstructions), places

    return api.run(run())


def test_what_is_learned_is_an_obstruction_that_says_how_often(api: Api) -> None:
    assert learn(api, LOSS)[1] == {PLACE.id: PLACE}
    learn(api, LOSS, HELD, LOSS)
    (feature,) = api.get("/v1/obstructions").json["features"]
    properties = feature["properties"]
    assert (properties["source"], properties["lost"], properties["held"]) == ("learned", 3, 1)
    assert learn(api, *[HELD] * 11) == ([], {})
    # A place that was forgotten in the meantime is not counted further.
    assert learn(api, HELD) == ([], {})


def test_an_obstruction_that_cannot_be_read_keeps_no_other_from_counting(api: Api) -> None:
    spoiled = insert(Obstruction).values(
        id="spoiled",
        source="manual",
        geometry={"type": "LineString", "coordinates": []},
        properties={},
        west=0.0,
        south=0.0,
        east=0.0,
        north=0.0,
    )

    async def spoil() -> None:
        async with api.changes.transaction() as (connection, _publish):
            await connection.execute(spoiled)

    api.run(spoil())
    assert learn(api, LOSS)[1] == {PLACE.id: PLACE}


def test_what_was_learned_is_taken_in_again_with_its_history(api: Api) -> None:
    learn(api, LOSS, LOSS, HELD, LOSS)
    exported = api.get("/v1/obstructions").json
    assert learn(api, *[HELD] * 12) == ([], {})
    for _ in range(2):
        assert api.call("POST", "/v1/obstructions", exported).json == {"accepted": 1}
        names, places = learn(api)
        assert names == [PLACE.id]
        assert (places[PLACE.id].lost, places[PLACE.id].held) == (3, 1)
    assert places[PLACE.id].axis == AXIS
    # The place with more observations counts; another service's id is of the same place.
    learn(api, HELD)
    text = json.dumps(exported)
    others = json.loads(text.replace(PLACE.id, "learned:00000000000000bb"))
    assert api.call("POST", "/v1/obstructions", others).json == {"accepted": 1}
    names, places = learn(api)
    assert names == [PLACE.id]
    assert places[PLACE.id].held == 2
    # It can still be unlearned.
    assert learn(api, *[HELD] * 12) == ([], {})
    # An id of earlier versions tells a terminal and a time.
    former = json.loads(text.replace(PLACE.id, "learned:99:1"))
    for _ in range(2):
        assert api.call("POST", "/v1/obstructions", former).json == {"accepted": 1}
        ((name, place),) = learn(api)[1].items()
        assert re.fullmatch(r"learned:[0-9a-f]{16}", name)
        assert (place.lost, place.held) == (3, 1)


def test_many_learned_places_are_taken_in_with_turns_for_others_between(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [
        replace(PLACE, id=f"learned:11:{n}", axis=line((0.0, 900.0 * n), (600.0, 900.0 * n)))
        for n in range(120)
    ]
    take_in, transactions = learned.take_in, []

    async def noted(*given: Any) -> None:
        transactions.append(given[0].get_transaction())
        await take_in(*given)

    monkeypatch.setattr(learned, "take_in", noted)
    document = to_geojson(one.obstruction for one in places)
    for feature in document["features"]:
        feature["properties"] |= {"source": "learned", "lost": 1, "held": 0}
    assert api.call("POST", "/v1/obstructions", document).json == {"accepted": 120}
    assert len(learn(api)[0]) == 120
    assert len(set(transactions)) > 1
    # If one place cannot be stored, none of the document is taken in.
    document["features"][119]["id"] = "learned:\n"
    document["features"][0]["id"] = "learned:12:1"
    assert api.call("POST", "/v1/obstructions", document).status == 422
    assert len(learn(api)[0]) == 120


def test_what_several_learn_at_once_is_counted_once_each_at_one_place(api: Api) -> None:
    others = [replace(LOSS, id=f"learned:{number}:1") for number in range(5)]

    async def one(lesson: Lesson) -> None:
        async with api.changes.transaction() as (connection, publish):
            await learned.put(connection, publish, [lesson])

    async def run() -> None:
        if api.database.is_sqlite:
            for lesson in others:
                await one(lesson)
        else:
            await asyncio.gather(*map(one, others))

    api.run(run())
    ((_, place),) = learn(api)[1].items()
    assert (place.lost, place.held) == (5, 0)


def test_a_map_holds_what_was_imported_and_what_was_learned(api: Api) -> None:
    area = {"type": "Polygon", "coordinates": [[[8, 46], [8.1, 46], [8.1, 46.1], [8, 46]]]}
    feature = {"type": "Feature", "id": "block", "geometry": area, "properties": {}}
    collection = {"type": "FeatureCollection", "features": [feature]}
    assert api.call("POST", "/v1/obstructions", collection).status == 200
    names, places = learn(api, LOSS)
    assert (names, list(places)) == (["block", PLACE.id], [PLACE.id])


def recalled(
    api: Api, at_ms: int, terminals: Collection[int] | None = None
) -> tuple[Predictions, Demands]:
    predictions, demands = Predictions(MAP), Demands()

    async def run() -> None:
        async with api.database.reading() as connection:
            await recall(connection, "ku-1", predictions, demands, at_ms, terminals)

    api.run(run())
    return predictions, demands


def drive(api: Api, fixes: list[Fix], at_ms: int) -> list[Fix]:
    """Report a drive as if it ended at a time."""
    shift = at_ms - fixes[-1].time_ms
    moved = [replace(fix, time_ms=fix.time_ms + shift) for fix in fixes]
    batch = [
        position(
            fix.time_ms,
            longitude=fix.lon,
            latitude=fix.lat,
            speed_mps=fix.speed_mps,
            heading_deg=fix.heading_deg,
        )
        for fix in moved
    ]
    assert report_positions(api, *batch).status == 202
    return moved


def test_a_new_planner_expects_what_the_old_one_did(api: Api) -> None:
    at = now_ms()
    fixes = drive(api, eastwards(-400.0, 20.0, seconds=35), at)
    old = Predictions(MAP)
    for fix in fixes:
        old.feed(FIRST, fix)
    new, _ = recalled(api, at)
    (there,), (here,) = (made.blockages_of(FIRST, at) for made in (old, new))
    assert there == here
    assert here.entry_ms - at > 15_000


def test_a_new_planner_lets_positions_that_are_dated_ahead_wait_for_their_time(api: Api) -> None:
    at = now_ms()
    fixes = drive(api, eastwards(-400.0, 20.0, seconds=35), at + 20_000)
    knowledge = Knowledge("ku-1")
    knowledge.set_nodes(frozenset({FIRST}))

    async def run() -> None:
        async with api.database.reading() as connection:
            await knowledge.recall(connection, at)
            # A process that has missed changes reads them again.
            await knowledge.recall(connection, at, {FIRST})

    def newest() -> int:
        last = knowledge.predictions._terminals[FIRST].predictor.track.last
        assert last is not None
        return last.time_ms

    api.run(run())
    assert newest() < at + 2_000
    assert api.run(knowledge.feed(at)) == 0
    assert newest() <= at + 2_000
    assert api.run(knowledge.feed(at + 20_000)) == 0
    assert newest() == fixes[-1].time_ms
    assert not knowledge._waiting


def test_of_each_terminal_the_first_positions_that_are_dated_ahead_are_read(api: Api) -> None:
    at = now_ms()
    drive(api, eastwards(-400.0, 20.0, seconds=35), at + 20_000)

    async def run() -> list[int]:
        async with api.database.reading() as connection:
            found = await positions.dated_ahead(connection, "ku-1", at + 2_000, limit=3)
        return [one.time_ms - at for one in found]

    assert api.run(run()) == [2_000, 3_000, 4_000]


def test_a_new_planner_knows_who_is_in_the_dark_and_what_was_announced(api: Api) -> None:
    at = now_ms()
    drive(api, eastwards(-40.0, 20.0, seconds=35), at - 5_000)
    taken(api, observed(at - 3_000))
    said = report(
        "announcement",
        announced_ms=at,
        entry_ms=at + 60_000,
        duration_ms=30_000,
        confidence=0.9,
    )
    taken(api, entry(said, SECOND))
    made = recalled(api, at)[0]
    first, second = (made.blockages_of(terminal, at)[0] for terminal in (FIRST, SECOND))
    assert (first.entry_ms, first.confidence) == (at - 3_000, 1.0)
    assert (second.entry_ms, second.confidence) == (at + 60_000, 0.9)


def test_of_a_new_terminal_what_the_others_have_reported_is_not_read(api: Api) -> None:
    at = now_ms()
    drive(api, eastwards(-400.0, 20.0, seconds=35), at)
    taken(api, observed(at - 3_000))
    for terminal in (FIRST, SECOND):
        said = report(
            "announcement",
            announced_ms=at,
            entry_ms=at + 60_000,
            duration_ms=30_000,
            confidence=0.9,
        )
        taken(api, entry(said, terminal))
        taken(api, entry(status(link(terminal), time_ms=at), terminal))
    made, demands = recalled(api, at, {SECOND})
    (blockage,) = made.blockages_of(SECOND, at)
    assert blockage.entry_ms == at + 60_000
    assert not made.blockages_of(FIRST, at)
    assert set(made._terminals) == {SECOND}
    assert {terminal for terminal, _ in demands._demands} == {SECOND}
    assert set(recalled(api, at)[0]._terminals) == {FIRST, SECOND}
    # With very many terminals, no statement names them.
    many = set(range(SECOND, SECOND + 2_000))
    assert made.blockages_of(SECOND, at) == recalled(api, at, many)[0].blockages_of(SECOND, at)


def test_a_planner_that_has_missed_the_end_of_a_blockage_learns_it_again(api: Api) -> None:
    at = now_ms()
    predictions = Predictions()
    predictions.observe(FIRST, at - 30_000, None)

    async def run() -> None:
        async with api.database.reading() as connection:
            await recall(connection, "ku-1", predictions, Demands(), at)

    taken(api, observed(at - 30_000))
    api.run(run())
    assert predictions.is_blocked(FIRST)
    taken(api, observed(at - 30_000, at - 10_000))
    api.run(run())
    assert not predictions.is_blocked(FIRST)


def test_a_new_planner_knows_routes(api: Api) -> None:
    async def set_route(route: Line) -> None:
        async with api.database.transaction() as connection:
            await routes.put(connection, FIRST, route)

    async def remove_route(known: Predictions) -> None:
        async with api.database.transaction() as connection:
            await routes.remove(connection, FIRST)
        async with api.database.reading() as connection:
            await recall(connection, "ku-1", known, Demands(), at)

    at = now_ms()
    drive(api, eastwards(-400.0, 20.0, seconds=35), at)
    api.run(set_route(line((-2_000.0, 0.0), (-300.0, 0.0), (-300.0, 1_000.0))))
    known = recalled(api, at)[0]
    assert known.blockages_of(FIRST, at) == ()
    # A process that missed changes also learns of deletions.
    api.run(remove_route(known))
    assert known.blockages_of(FIRST, at)


def test_a_new_planner_knows_who_wanted_how_much(api: Api) -> None:
    at = now_ms()
    for n in range(25):
        made = status(
            link(sent_bytes=100_000 * n, efficiency=1.5),
            uptime_ms=1_000 * n,
            time_ms=at - 25_000 + 1_000 * n,
            synchronised=True,
        )
        taken(api, entry(made))
    busy = status(link(SECOND, "forward", backlogged_bytes=10**7, sent_bytes=5), time_ms=at)
    taken(api, entry(busy, HUB))
    demands = recalled(api, at)[1]
    rate = demands.of_link(Link.RETURN, [FIRST], 2_000_000, at)[FIRST].demand_bps
    assert rate is not None
    assert 1.25 * 800_000 <= rate <= 1.25 * 800_000 * 1.125
    assert demands.efficiency(FIRST, Link.RETURN) == 1.5
    assert demands.of_link(Link.FORWARD, [SECOND], 2_000_000, at)[SECOND].demand_bps is None


def test_a_track_of_long_ago_is_not_recalled(api: Api) -> None:
    at = now_ms()
    drive(api, eastwards(-400.0, 20.0), at - 20 * 60_000)
    assert FIRST not in recalled(api, at)[0]._terminals
    assert at > START_MS
