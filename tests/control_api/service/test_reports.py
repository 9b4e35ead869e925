"""Gateways' reports: taken in once, in any order, and only for their own terminals."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from underpass_control.access.secrets import digest_of
from underpass_control.alerts import evidence
from underpass_control.alerts.rules import Loss
from underpass_control.roles import Role
from underpass_control.storage import links, usage
from underpass_control.storage.attachments import mac_of
from underpass_control.storage.links import LinkState

from dama.planner import Link
from tests.control_api.service.api import FIRST, SECOND, Api, Reply, now_ms
from tests.control_api.service.test_positions import TRACK, moment, times

HUB, OTHER_HUB = 1, 2
_UPTIMES = itertools.count(1_000, 1_000)


def link(terminal: int = FIRST, direction: str = "return", **members: object) -> dict[str, object]:
    made: dict[str, object] = {
        "terminal": terminal,
        "path": "satellite",
        "direction": direction,
        "state": "up",
        "offered_bytes": 1000,
        "backlogged_bytes": 0,
        "sent_bytes": 1000,
        "streams": 1,
    }
    return {**made, **members}


def report(kind: str, **members: object) -> dict[str, object]:
    if kind == "position":
        members = {"synchronised": False, **members}
    return {"kind": kind, "uptime_ms": next(_UPTIMES), "incarnation": 1, **members}


def status(*of_links: dict[str, object], **members: object) -> dict[str, object]:
    return report("status", links=list(of_links or (link(),)), **members)


def entry(made: dict[str, object], node: int = FIRST, age_ms: int = 100) -> dict[str, object]:
    return {"node": node, "age_ms": age_ms, "report": made}


def envelope(*entries: object, node: int = HUB) -> dict[str, object]:
    return {"version": 1, "node": node, "sent_ms": now_ms(), "reports": list(entries)}


def post(api: Api, *entries: object, caller: str = "gateway", node: int = HUB) -> Reply:
    return api.call("POST", "/v1/reports", envelope(*entries, node=node), caller=caller)


def taken(api: Api, *entries: object, node: int = HUB, caller: str = "gateway") -> None:
    reply = post(api, *entries, node=node, caller=caller)
    assert reply.status == 200, reply.text
    assert reply.json["refused"] == []
    assert reply.json["accepted"] == len(entries)


def refusal(api: Api, made: object, node: int = FIRST) -> str:
    reply = post(api, entry(made, node) if isinstance(made, dict) else made)
    assert reply.status == 200, reply.text
    (refused,) = reply.json["refused"]
    assert (refused["index"], reply.json["accepted"]) == (0, 0)
    detail: str = refused["detail"]
    return detail


def states(api: Api) -> dict[tuple[int, str], LinkState]:
    async def run() -> list[LinkState]:
        async with api.database.reading() as connection:
            return await links.page(connection)

    return {state.key: state for state in api.run(run())}


def sent_bits(api: Api, since_ms: int, until_ms: int, terminal: int = FIRST) -> int:
    async def run() -> int:
        async with api.database.reading() as connection:
            found = await usage.usage(
                connection,
                "ku-1",
                Link.RETURN,
                since_ms - since_ms % 10_000,
                until_ms - until_ms % 10_000 + 10_000,
            )
            return sum(bucket.sent_bits for bucket in found.get(terminal, []))

    return api.run(run())


def test_a_receipt_has_the_times_by_which_clocks_are_compared(api: Api) -> None:
    before = now_ms()
    receipt = post(api).json
    assert (receipt["accepted"], receipt["refused"]) == (0, [])
    assert before <= receipt["received_ms"] <= receipt["answered_ms"] <= now_ms()


def test_a_status_is_the_state_of_its_links(api: Api) -> None:
    made = status(link(plan_version=7, efficiency=1.5, rate_bps=2_000_000), synchronised=True)
    forward = status(link(FIRST, "forward", state="blocked"), link(SECOND, "forward"))
    taken(api, entry(made), entry(forward, HUB))
    found = states(api)
    assert set(found) == {(FIRST, "return"), (FIRST, "forward"), (SECOND, "forward")}
    own = found[FIRST, "return"]
    assert (own.node, own.gateway, own.plan, own.efficiency) == (FIRST, HUB, 7, 1.5)
    assert (own.rate_bps, own.synchronised) == (2_000_000, True)
    assert found[FIRST, "forward"].state == "blocked"


def test_only_a_newer_status_replaces_another(api: Api) -> None:
    old, new = status(link(streams=1)), status(link(streams=2))
    taken(api, entry(new), entry(old))
    assert states(api)[FIRST, "return"].streams == 2
    taken(api, entry(old))
    assert states(api)[FIRST, "return"].streams == 2
    again = status(link(streams=3), incarnation=2, uptime_ms=5)
    taken(api, entry(again), entry(status(link(streams=4))))
    assert states(api)[FIRST, "return"].streams == 3


@pytest.mark.parametrize(
    ("members", "age_ms", "offset_ms"),
    [
        ({"time_ms": -3_000, "clock_offset_ms": -2_000}, 70, -1_000),
        ({"time_ms": 90_000, "clock_offset_ms": 90_500, "synchronised": True}, 70, -500),
        ({"time_ms": -400, "synchronised": True}, 70, -400),
        ({"time_ms": -3_000}, 70, -70),
        ({}, 5_000, -5_000),
    ],
)
def test_a_report_is_as_old_as_its_clock_says_if_that_is_known_or_else_its_age(
    api: Api, members: dict[str, Any], age_ms: int, offset_ms: int
) -> None:
    at = now_ms()
    if "time_ms" in members:
        members = {**members, "time_ms": at + members["time_ms"]}
    taken(api, entry(status(**members), age_ms=age_ms))
    state = states(api)[FIRST, "return"]
    late = state.received_ms - at if "time_ms" not in members or len(members) == 1 else 0
    assert state.time_ms == at + late + offset_ms


def test_usage_is_right_when_late_batches_of_a_blockage_come_after_the_newest(api: Api) -> None:
    start = now_ms() - 60_000
    made = [
        entry(
            status(
                link(sent_bytes=1_000 * n, state="up" if n < 20 or n > 50 else "blocked"),
                uptime_ms=1_000 * n,
                time_ms=start + 1_000 * n,
                synchronised=True,
            )
        )
        for n in range(1, 60)
    ]
    taken(api, *made[:20])
    taken(api, made[-1])
    taken(api, *made[40:], *made[18:24])
    taken(api, *made[20:41])
    assert sent_bits(api, start, start + 60_000) == 8 * 59_000
    assert states(api)[FIRST, "return"].sent_bytes == 59_000


def test_a_position_is_stored_as_any_other(api: Api) -> None:
    at = now_ms() - 3_000
    place = {"longitude": 7.5, "latitude": 46.5, "speed_mps": 13.5, "accuracy_m": 3.5}
    made = report("position", **place, gnss_time_ms=at, node_time_ms=at + 2_500)
    taken(api, entry(made), entry(made))
    newest = api.get(TRACK + "/newest").json
    assert newest["time"] == moment(at)
    assert {name: newest[name] for name in place} == place
    assert (newest["gnss_time"], newest["node_time"]) == (moment(at), moment(at + 2_500))
    assert newest["clocks_differ"]
    assert len(times(api)) == 1


@pytest.mark.parametrize(
    ("gnss", "node", "synchronised", "ruling"),
    [
        (-3_000, -2_000, True, -3_000),
        (-9_000, -2_000, True, -2_000),
        (-9_000, -2_000, False, -9_000),
        (None, -2_000, True, -2_000),
        (None, -2_000, False, None),
        (-9_000, None, False, -9_000),
        (None, None, False, None),
    ],
)
def test_of_two_clocks_that_differ_the_synchronised_one_rules(
    api: Api, gnss: int | None, node: int | None, synchronised: bool, ruling: int | None
) -> None:
    at = now_ms()
    clocks = {"gnss_time_ms": gnss, "node_time_ms": node}
    known = {name: at + ms for name, ms in clocks.items() if ms is not None}
    made = report("position", longitude=7.5, latitude=46.5, synchronised=synchronised, **known)
    taken(api, entry(made, age_ms=700))
    newest = api.get(TRACK + "/newest").json
    if ruling is None:
        assert moment(at - 700) <= newest["time"] <= moment(now_ms() - 700)
    else:
        assert newest["time"] == moment(at + ruling)


@pytest.mark.parametrize("clock", ["gnss_time_ms", "node_time_ms"])
def test_a_clock_that_no_answer_could_show_is_refused_even_where_it_does_not_rule(
    api: Api, clock: str
) -> None:
    clocks = {"gnss_time_ms": now_ms(), "node_time_ms": now_ms(), clock: 2**53}
    synchronised = clock == "gnss_time_ms"
    made = report("position", longitude=7.5, latitude=46.5, synchronised=synchronised, **clocks)
    assert clock in refusal(api, made)
    assert api.get("/v1/positions").json["positions"] == []


def test_the_gateway_that_a_terminal_speaks_by_is_learnt(api: Api) -> None:
    other = api.run(api.token(Role.GATEWAY, OTHER_HUB))

    def heard_by(terminal: int) -> int | None:
        found: int | None = api.get(f"/v1/terminals/{terminal}").json.get("heard_by")
        return found

    tag = {"If-None-Match": api.get(f"/v1/terminals/{FIRST}").headers["ETag"]}
    taken(api, entry(status(link(FIRST, "forward"), link(SECOND, "forward")), HUB))
    assert (heard_by(FIRST), heard_by(SECOND)) == (HUB, HUB)
    assert api.get(f"/v1/terminals/{FIRST}", headers=tag).status == 200
    moved = now_ms() - 1_000
    mac = mac_of(digest_of(api.tokens["first"]), FIRST, OTHER_HUB, moved).hex()
    proof = {"gateway": OTHER_HUB, "time_ms": moved, "mac": mac}
    taken(api, entry(status(incarnation=2, proof=proof)), node=OTHER_HUB, caller=other)
    # The gateway that it has left goes on reporting it.
    taken(api, entry(status(link(FIRST, "forward", state="down")), HUB))
    assert (heard_by(FIRST), heard_by(SECOND)) == (OTHER_HUB, HUB)
    # Nor does a report that it makes in the terminal's name take the terminal back.
    assert "at gateway 2" in refusal(api, status(incarnation=3))
    assert heard_by(FIRST) == OTHER_HUB


def test_a_link_that_the_gateway_left_behind_has_down_is_not_down(api: Api) -> None:
    other = api.run(api.token(Role.GATEWAY, OTHER_HUB))
    taken(
        api,
        entry(status(link(FIRST, "forward")), OTHER_HUB),
        node=OTHER_HUB,
        caller=other,
    )
    taken(api, entry(status(link(FIRST, "forward", state="down")), HUB, age_ms=0))
    assert states(api)[FIRST, "forward"].node == OTHER_HUB


def test_of_several_paths_the_beams_is_the_one_that_follows_a_plan(api: Api) -> None:
    cellular = link(path="cellular", sent_bytes=5)
    taken(api, entry(status(cellular, link(plan_version=3))))
    assert states(api)[FIRST, "return"].path == "satellite"
    taken(api, entry(status(cellular, link())))
    assert states(api)[FIRST, "return"].path == "cellular"


def test_a_bad_report_is_refused_alone(api: Api) -> None:
    at = now_ms()
    good = report("position", longitude=7.5, latitude=46.5, gnss_time_ms=at)
    late = report("position", longitude=7.5, latitude=46.5, gnss_time_ms=at + 120_000)
    wild = report("position", longitude=190, latitude=46.5)
    reply = post(
        api,
        entry(late),
        entry(good),
        entry(wild),
        "nonsense",
        entry(status(), node=99),
        entry(report("colour")),
        {**entry(good), "age_ms": -1},
    )
    assert reply.status == 200
    details = {one["index"]: one["detail"] for one in reply.json["refused"]}
    assert sorted(details) == [0, 2, 3, 4, 5, 6]
    assert "cannot be the time" in details[0]
    assert "longitude" in details[2]
    assert "99" in details[4]
    assert "kind" in details[5]
    assert "age_ms" in details[6]
    assert reply.json["accepted"] == 1
    assert times(api) == [moment(at)]


@pytest.mark.parametrize(
    ("node", "made"),
    [
        (FIRST, status(link(SECOND))),
        (FIRST, status(link(FIRST), link(SECOND))),
        (FIRST, status(link(FIRST, "forward"))),
        (HUB, status(link(FIRST, "return"))),
        (
            FIRST,
            report(
                "blockage",
                terminal=SECOND,
                path="s",
                direction="return",
                entry_ms=1_800_000_000_000,
                source="modem",
            ),
        ),
        (
            FIRST,
            report("plan", beam="ku-1", link="return", plan=1, applied_ms=10**12, terminal=SECOND),
        ),
        (
            SECOND,
            report("plan", beam="ku-1", link="return", plan=1, applied_ms=10**12),
        ),
        (HUB, report("position", longitude=7.5, latitude=46.5)),
    ],
)
def test_nobody_speaks_for_another(unchanged: Api, node: int, made: dict[str, object]) -> None:
    assert refusal(unchanged, made, node)
    assert states(unchanged) == {}


def test_a_gateway_posts_as_itself_only(api: Api) -> None:
    refused = post(api, entry(status()), node=OTHER_HUB)
    assert (refused.status, states(api)) == (403, {})
    assert "node 1" in refused.problem
    free = api.run(api.token(Role.GATEWAY))
    taken(api, entry(status()), node=OTHER_HUB, caller=free)
    for caller in ("viewer", "first"):
        assert post(api, entry(status()), caller=caller).status == 403


def test_links_to_strangers_are_passed_over(api: Api) -> None:
    taken(api, entry(status(link(FIRST, "forward"), link(99, "forward")), HUB))
    assert set(states(api)) == {(FIRST, "forward")}
    metrics = api.get("/metrics").text
    assert "underpass_control_reports_of_strangers_total 1.0" in metrics
    assert 'underpass_control_reports_total{kind="status"} 1.0' in metrics


@pytest.mark.parametrize(
    "members",
    [
        {"version": 2},
        {"node": 0},
        {"sent_ms": "now"},
        {"reports": {}},
        {"reports": [{}] * 1_001},
    ],
)
def test_what_is_no_post_is_refused_whole(unchanged: Api, members: dict[str, object]) -> None:
    refused = unchanged.call("POST", "/v1/reports", {**envelope(), **members}, caller="gateway")
    assert refused.status == 422


def test_a_post_of_too_many_links_is_refused_whole(api: Api) -> None:
    many = entry(status(*[link(FIRST, "forward")] * 7_000), HUB)
    refused = post(api, many, many, many)
    assert (refused.status, states(api)) == (422, {})
    assert "20000" in refused.problem


@pytest.mark.parametrize(
    "members",
    [
        {"sent_bytes": -1},
        {"sent_bytes": 2**63},
        {"sent_bytes": 1.5},
        {"efficiency": 0},
        {"efficiency": float("nan")},
        {"state": "sideways"},
        {"path": "a\0b"},
        {"path": "'; DROP TABLE link_state; --" * 10},
        {"terminal": -1},
        {"direction": "up"},
        {"plan_version": True},
    ],
)
def test_impossible_links_are_refused(unchanged: Api, members: dict[str, Any]) -> None:
    body = envelope(entry(status(link(**members))))
    reply = unchanged.call("POST", "/v1/reports", body, caller="gateway")
    if reply.status == 200:
        assert next(iter(members)) in reply.json["refused"][0]["detail"]
    else:
        # NaN is not even JSON.
        assert reply.status == 400
    assert states(unchanged) == {}


def test_the_longest_names_are_taken_and_told(api: Api) -> None:
    path = "\N{SATELLITE}\N{ROCKET}" * 64
    made = status(*(link(node, "forward", path=path) for node in (FIRST, SECOND)))
    at = now_ms() - 1_000
    seen = report(
        "blockage", terminal=FIRST, path=path, direction="return", entry_ms=at, source="modem"
    )
    said = report(
        "announcement",
        announced_ms=at,
        entry_ms=at,
        duration_ms=1,
        confidence=1,
        obstruction=path,
    )
    many = [{**said, "announced_ms": at - n} for n in range(20)]
    taken(api, entry(made, HUB), entry(seen), *map(entry, many))
    assert states(api)[FIRST, "forward"].path == path


def test_of_many_paths_as_many_are_shown_as_a_change_holds(api: Api) -> None:
    name = "\N{SATELLITE}\N{ROCKET}"
    most = 2**53 - 1
    classes = [{"name": name * 16, "streams": most, "backlogged_bytes": most}] * 8
    figures = {
        **dict.fromkeys(("rtt_ms", "queue_ms", "stored_bundles", "stored_bytes"), most),
        **{"loss": 1 / 3, "classes": classes},
    }
    paths = [name * 63 + f"{n:02}" for n in range(20)]
    made = status(*(link(path=path, figures=figures, rate_bps=most) for path in paths))
    taken(api, entry(made))
    (one,) = api.call("GET", f"/v1/links?terminal={FIRST}").json["links"]
    assert [path["path"] for path in one["figures"]["other_paths"]] == paths[1:2]
    assert one["figures"]["unlisted_paths"] == 18
    # With usual names, all paths are shown.
    made = status(*(link(path=f"path-{n}", figures=figures) for n in range(9)))
    taken(api, entry(made))
    (one,) = api.call("GET", f"/v1/links?terminal={FIRST}").json["links"]
    assert len(one["figures"]["other_paths"]) == 8
    assert "unlisted_paths" not in one["figures"]


def test_a_blockage_is_over_when_its_path_is_up_or_there_no_more(api: Api) -> None:
    began = now_ms() - 60_000

    def told(after_ms: int, **paths: str) -> None:
        of_links = [link(path=path, state=state) for path, state in paths.items()]
        taken(api, entry(status(*of_links, time_ms=began + after_ms, synchronised=True)))

    def lasting() -> set[str]:
        found = api.get(f"/v1/blockages?terminal={FIRST}").json["blockages"]
        return {one["path"] for one in found if "exit" not in one}

    for path in ("satellite", "lte", "adsl"):
        seen = {"terminal": FIRST, "path": path, "direction": "return", "entry_ms": began}
        taken(api, entry(report("blockage", source="probing", **seen)))
    told(1_000, satellite="blocked", lte="blocked", adsl="blocked")
    assert lasting() == {"satellite", "lte", "adsl"}
    told(2_000, satellite="blocked", lte="up", adsl="down")
    assert lasting() == {"satellite", "adsl"}
    told(3_000, sat="up", adsl="blocked")
    assert lasting() == {"adsl"}
    (over,) = [
        one
        for one in api.get(f"/v1/blockages?terminal={FIRST}").json["blockages"]
        if one["path"] == "satellite"
    ]
    assert over["exit"] == moment(began + 3_000)


def test_alerts_go_by_the_path_that_should_have_been_back_first(api: Api) -> None:
    async def losses() -> dict[Link, Loss]:
        async with api.database.reading() as connection:
            (of_first,) = [
                one for one in await evidence.read(connection, now_ms()) if one.terminal == FIRST
            ]
            return dict(of_first.losses)

    at = now_ms() - 60_000
    for path, entry_ms in (("lte", at + 20_000), ("satellite", at), ("adsl", at + 40_000)):
        seen = {"terminal": FIRST, "path": path, "direction": "return", "entry_ms": entry_ms}
        taken(api, entry(report("blockage", source="probing", **seen)))
    assert api.run(losses()) == {Link.RETURN: Loss(at, None)}


def test_members_of_a_newer_node_are_passed_over(api: Api) -> None:
    taken(api, {**entry(status(link(colour="red"), mood="good")), "hops": 3})


def test_many_posts_at_once_lose_nothing(api: Api) -> None:
    start = now_ms() - 30_000

    def of(terminal: int, n: int) -> dict[str, object]:
        made = status(
            link(terminal, sent_bytes=100 * n),
            uptime_ms=1_000 * n,
            time_ms=start + 1_000 * n,
            synchronised=True,
        )
        return entry(made, terminal)

    async def run() -> list[Reply]:
        posts = (envelope(of(FIRST, n), of(SECOND, n)) for n in range(30, 0, -1))
        asked = (api.ask("POST", "/v1/reports", one, caller="gateway") for one in posts)
        return list(await asyncio.gather(*asked))

    assert {reply.status for reply in api.run(run())} == {200}
    for terminal in (FIRST, SECOND):
        assert sent_bits(api, start, start + 30_000, terminal) == 8 * 3_000
        assert states(api)[terminal, "return"].sent_bytes == 3_000


def test_what_is_known_of_a_link_beyond_plans_is_shown_as_it_was_said(api: Api) -> None:
    figures = {
        "rtt_ms": 652,
        "queue_ms": 40,
        "loss": 0.005,
        "stored_bundles": 3,
        "stored_bytes": 12_000,
        "classes": [
            {"name": "interactive", "streams": 2, "backlogged_bytes": 400},
            {"name": "bulk", "backlogged_bytes": 0},
        ],
    }
    later = {**figures, "classes": [], "of a later version": 1}
    lte: dict[str, Any] = {
        "path": "lte",
        "state": "blocked",
        "sent_bytes": 7,
        "rate_bps": 9_000_000,
    }
    taken(api, entry(status(link(figures=figures))))
    shown = api.call("GET", f"/v1/links?terminal={FIRST}").json["links"]
    assert [one.get("figures") for one in shown if one["link"] == "return"] == [figures]
    taken(api, entry(status(link(figures=later))))
    (one,) = api.call("GET", f"/v1/links?terminal={FIRST}").json["links"]
    assert one["figures"] == {**figures, "classes": []}
    # Of several paths, the one that follows the beam's plan comes first.
    measured = {"capacity_bps": 4_000_000, "reason": "limit"}
    beside = {**link(), **lte, "measured": measured, "figures": {**figures, "rtt_ms": 40}}
    taken(api, entry(status(beside, link(figures=figures, plan_version=3))))
    (one,) = api.call("GET", f"/v1/links?terminal={FIRST}").json["links"]
    seen = {"capacity_bps": 4_000_000, "rtt_ms": 40, "queue_ms": 40, "loss": 0.005}
    assert one["path"] == "satellite"
    assert one["figures"] == {**figures, "other_paths": [{**lte, **seen}]}
    # A node of an earlier version was started since.
    taken(api, entry(status(link())))
    (one,) = api.call("GET", f"/v1/links?terminal={FIRST}").json["links"]
    assert "figures" not in one


def test_no_names_of_a_terminal_are_too_long_to_be_told(api: Api) -> None:
    # In a change each of these characters takes twelve bytes.
    long, most = "\N{GRINNING FACE}", 2**63 - 1
    classes = [{"name": 32 * long, "streams": most, "backlogged_bytes": most}] * 8
    figures = {
        **{"rtt_ms": 2**53, "queue_ms": 2**53, "loss": 0.123456789012345},
        **{"stored_bundles": most, "stored_bytes": most, "classes": classes},
    }
    counts = dict.fromkeys(("offered_bytes", "backlogged_bytes", "sent_bytes", "streams"), most)
    measured = {"capacity_bps": 10**12, "reason": 128 * long}
    members = {**counts, "rate_bps": most, "figures": figures, "measured": measured}
    for others in (0, 8):
        names = [127 * long + str(number) for number in range(others + 1)]
        made = [{**link(), **members, "path": name, "state": "blocked"} for name in names]
        # The beam's path is the one with a plan.
        made[0]["plan_version"] = most
        taken(api, entry(status(*made, incarnation=most)))
        (one,) = api.get(f"/v1/links?terminal={FIRST}").json["links"]
        assert one["path"] == names[0]
        assert 0 < len(one["figures"]["classes"]) < 8
        assert len(one["figures"].get("other_paths", [])) == min(others, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": 1.1},
        {"queue_ms": -1},
        {"stored_bytes": 2**63},
        {"classes": [{"name": "", "backlogged_bytes": 0}]},
        {"classes": [{"name": "x" * 33, "backlogged_bytes": 0}]},
        {"classes": [{"name": "a\nb", "backlogged_bytes": 0}]},
        {"classes": [{"name": "a", "backlogged_bytes": 0}] * 9},
    ],
)
def test_figures_out_of_bounds_have_the_report_refused(api: Api, wrong: dict[str, object]) -> None:
    good = {"queue_ms": 0, "loss": 0.0, "stored_bundles": 0, "stored_bytes": 0, "classes": []}
    taken(api, entry(status(link(figures=good))))
    assert "figures" in refusal(api, status(link(figures={**good, **wrong})))
