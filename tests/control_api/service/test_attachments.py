"""A gateway's token counts only for the terminals at that gateway, and moves no others."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import event
from underpass_control.access.secrets import digest_of
from underpass_control.roles import Role
from underpass_control.storage.attachments import mac_of

from tests.control_api.service import test_reports as reports
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_access import position as rest_position
from tests.control_api.service.test_positions import TRACK, moment, times
from tests.control_api.service.test_reports import (
    HUB,
    OTHER_HUB,
    link,
    post,
    report,
    states,
    status,
    taken,
)


def entry(made: dict[str, object], node: int = FIRST) -> dict[str, object]:
    """Return an entry made at present, not before a move."""
    return reports.entry(made, node, age_ms=0)


@pytest.fixture
def other(api: Api) -> str:
    """The token of the other hub; the first terminal is at the first hub."""
    taken(api, entry(status()))
    return api.run(api.token(Role.GATEWAY, OTHER_HUB))


def proof(
    token: str, gateway: int = OTHER_HUB, time_ms: int | None = None, terminal: int = FIRST
) -> dict[str, Any]:
    time_ms = now_ms() if time_ms is None else time_ms
    mac = mac_of(digest_of(token), terminal, gateway, time_ms).hex()
    return {"gateway": gateway, "time_ms": time_ms, "mac": mac}


def heard_by(api: Api, terminal: int = FIRST) -> int | None:
    found: int | None = api.get(f"/v1/terminals/{terminal}").json.get("heard_by")
    return found


def refused(api: Api, token: str, *entries: object) -> list[str]:
    reply = post(api, *entries, node=OTHER_HUB, caller=token)
    assert reply.status == 200, reply.text
    return [one["detail"] for one in reply.json["refused"]]


def test_another_gateway_neither_moves_a_terminal_nor_speaks_for_it(api: Api, other: str) -> None:
    at = now_ms()
    before = states(api)
    place = {"longitude": 7.5, "latitude": 46.5, "gnss_time_ms": at}
    ahead = {"announced_ms": at, "entry_ms": at + 60_000, "duration_ms": 9_000, "confidence": 1.0}
    seen = {"path": "s", "direction": "return", "entry_ms": at, "source": "modem"}
    entries = [
        entry(status(incarnation=9)),
        entry(report("position", **place)),
        entry(report("announcement", **ahead)),
        entry(report("blockage", terminal=FIRST, **seen)),
        entry(report("blockage", terminal=FIRST, **{**seen, "direction": "forward"}), OTHER_HUB),
        entry(report("plan", beam="ku-1", link="return", plan=1, applied_ms=at, terminal=FIRST)),
    ]
    details = refused(api, other, *entries)
    assert len(details) == len(entries)
    assert set(details) == {f"terminal {FIRST} is at gateway {HUB}, not {OTHER_HUB}"}
    assert (states(api), times(api), heard_by(api)) == (before, [], HUB)


def test_a_gateway_that_speaks_of_all_terminals_is_heard_of_its_own(api: Api, other: str) -> None:
    both = status(link(FIRST, "forward"), link(SECOND, "forward"))
    assert refused(api, other, entry(both, OTHER_HUB)) == []
    assert (FIRST, "forward") not in states(api)
    assert states(api)[SECOND, "forward"].node == OTHER_HUB
    assert "underpass_control_reports_elsewhere_total 1.0" in api.get("/metrics").text
    # The other hub was the first to speak of the second terminal, so that is there.
    reply = post(api, entry(status(link(SECOND)), SECOND))
    assert f"is at gateway {OTHER_HUB}" in reply.json["refused"][0]["detail"]
    assert heard_by(api, SECOND) == OTHER_HUB
    assert refused(api, other, entry(status(link(SECOND)), SECOND)) == []


def test_a_terminal_that_has_not_reported_is_not_taken_from_the_gateway_that_speaks_of_it(
    api: Api, other: str
) -> None:
    taken(api, entry(status(link(SECOND, "forward")), HUB))
    details = refused(api, other, entry(status(link(SECOND)), SECOND))
    assert details == [f"terminal {SECOND} is at gateway {HUB}, not {OTHER_HUB}"]
    assert heard_by(api, SECOND) == HUB
    # Its own word moves it all the same.
    made = proof(api.tokens["second"], terminal=SECOND)
    assert refused(api, other, entry(status(link(SECOND), proof=made), SECOND)) == []
    assert heard_by(api, SECOND) == OTHER_HUB


def test_the_many_that_a_first_post_speaks_of_are_not_read_one_by_one(api: Api) -> None:
    nodes = range(100, 150)
    lines = ["node,beam,name", *(f"{node},ku-1,coach {node}" for node in nodes)]
    made = api.call("PUT", "/v1/terminals.csv", "\n".join(lines), content_type="text/csv")
    assert made.status == 200, made.text
    read: list[str] = []

    def executed(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if re.search(r"FROM terminal\s+WHERE terminal\.node = ", statement):
            read.append(statement)

    engine = api.database.engine.sync_engine
    event.listen(engine, "after_cursor_execute", executed)
    try:
        taken(api, entry(status(*(link(node, "forward") for node in nodes)), HUB), node=HUB)
    finally:
        event.remove(engine, "after_cursor_execute", executed)
    assert len(read) < 10, read
    assert {heard_by(api, node) for node in nodes} == {HUB}


def test_other_endpoints_ask_where_a_terminal_is_too(api: Api, other: str) -> None:
    batch = {"positions": [rest_position(FIRST)]}
    line = {"type": "LineString", "coordinates": [[7.5, 46.5], [7.6, 46.5]]}
    said = {"entry": moment(now_ms() + 60_000), "duration_ms": 1_000, "confidence": 1.0}
    for method, path, body in (
        ("POST", "/v1/positions", batch),
        ("POST", TRACK, rest_position()),
        ("PUT", f"/v1/terminals/{FIRST}/route", line),
        ("DELETE", f"/v1/terminals/{FIRST}/route", None),
        ("POST", f"/v1/terminals/{FIRST}/announcements", said),
    ):
        reply = api.call(method, path, body, caller=other)
        assert (reply.status, reply.problem) == (403, "terminal 11 is at gateway 1, not 2"), path
    assert api.call("POST", "/v1/positions", batch, caller="gateway").status == 202


def test_a_terminal_moves_with_its_proof(api: Api, other: str) -> None:
    made = status(proof=proof(api.tokens["first"]), incarnation=2)
    place = report("position", longitude=7.5, latitude=46.5, gnss_time_ms=now_ms())
    assert refused(api, other, entry(place), entry(made)) == []
    assert heard_by(api) == OTHER_HUB
    assert len(times(api)) == 1
    # From then on the terminal is at that gateway without any further proof.
    assert refused(api, other, entry(status(incarnation=2))) == []
    reply = post(api, entry(status(incarnation=2)))
    assert "is at gateway 2" in reply.json["refused"][0]["detail"]


def test_what_was_said_before_the_move_still_comes_by_the_former_gateway(
    api: Api, other: str
) -> None:
    moved = now_ms()
    token = api.tokens["first"]
    assert refused(api, other, entry(status(proof=proof(token, time_ms=moved)))) == []

    def place(at_ms: int) -> object:
        return entry(report("position", longitude=7.5, latitude=46.5, gnss_time_ms=at_ms))

    taken(api, place(moved - 5_000))
    assert "at gateway 2" in post(api, place(moved)).json["refused"][0]["detail"]


@pytest.mark.parametrize("wrong", ["token", "gateway", "terminal", "time", "revoked", "future"])
def test_what_proves_nothing_moves_nothing(api: Api, other: str, wrong: str) -> None:
    token = api.tokens["second" if wrong == "token" else "first"]
    made = proof(token, time_ms=now_ms() + 120_000 if wrong == "future" else None)
    if wrong == "gateway":
        made = {**proof(token, gateway=HUB), "gateway": OTHER_HUB}
    elif wrong == "terminal":
        made["mac"] = mac_of(digest_of(token), SECOND, OTHER_HUB, made["time_ms"]).hex()
    elif wrong == "time":
        made["time_ms"] += 1
    elif wrong == "revoked":
        api.run(api.revoke(token))
    (detail,) = refused(api, other, entry(status(proof=made)))
    assert "is at gateway 1" in detail
    assert heard_by(api) == HUB


def test_a_terminal_that_was_given_to_another_tenant_moves_with_that_ones_token(
    api: Api, other: str
) -> None:
    path, body = f"/v1/terminals/{FIRST}", {"beam": "ku-1", "name": "van"}
    tenants = "former", "present"
    for tenant in tenants:
        made = api.call("PUT", f"/v1/tenants/{tenant}", {"name": "T"}, caller="administrator")
        assert made.status == 201
    of = {one: api.run(api.token(Role.TERMINAL, FIRST, tenant=one)) for one in tenants}
    assert api.call("PUT", path, {**body, "tenant": "present"}).status == 200
    assert len(refused(api, other, entry(status(proof=proof(of["former"]))))) == 1
    assert heard_by(api) == HUB
    assert refused(api, other, entry(status(proof=proof(of["present"])))) == []
    assert heard_by(api) == OTHER_HUB


def test_an_old_proof_does_not_take_a_terminal_back(api: Api, other: str) -> None:
    token = api.tokens["first"]
    there = proof(token, time_ms=now_ms() - 2_000)
    here = proof(token, HUB, now_ms() - 1_000)
    # It was first heard here just now, so a proof from before that is too late.
    assert len(refused(api, other, entry(status(proof=there)))) == 1
    there, back = proof(token), proof(token, HUB, now_ms() + 1)
    assert refused(api, other, entry(status(proof=there))) == []
    taken(api, entry(status(proof=back)))
    assert heard_by(api) == HUB
    for old in (there, here):
        assert len(refused(api, other, entry(status(proof=old)))) == 1
    assert heard_by(api) == HUB


def test_an_operators_word_moves_a_terminal_and_no_proof_does_then(api: Api, other: str) -> None:
    path, body = f"/v1/terminals/{FIRST}", {"beam": "ku-1", "name": "van"}
    assert api.call("PUT", path, {**body, "gateway": OTHER_HUB}).status == 200
    assert refused(api, other, entry(status(incarnation=2))) == []
    reply = post(api, entry(status(proof=proof(api.tokens["first"], HUB), incarnation=2)))
    assert "is at gateway 2" in reply.json["refused"][0]["detail"]
    # Without the operator's setting it is where it was last heard.
    assert api.call("PUT", path, body).status == 200
    taken(api, entry(status(incarnation=2)))
    assert len(refused(api, other, entry(status(incarnation=2)))) == 1


def test_an_operators_own_post_speaks_for_any(api: Api, other: str) -> None:
    assert other
    taken(api, entry(status(incarnation=4)), node=OTHER_HUB, caller="operator")
    assert states(api)[FIRST, "return"].gateway == OTHER_HUB
    assert heard_by(api) == HUB
