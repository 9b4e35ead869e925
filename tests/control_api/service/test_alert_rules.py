"""Changes of alert rules: none is overwritten unseen, and firing alerts follow them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import delete, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.http import alert_models
from underpass_control.http import alerts as endpoints
from underpass_control.roles import Role
from underpass_control.storage import registry
from underpass_control.storage.models import Beam, LedgerLot

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_alerts import looked, quiet, rule, silent_since
from tests.control_api.service.two_tenants import NORTH, settle

__all__ = ["quiet"]


def body_of(made: dict[str, Any], **changed: object) -> dict[str, Any]:
    """Return the body for a rule as it is, except for the changes."""
    kept = {name: value for name, value in made.items() if name not in ("id", "revision")}
    return {**kept, **changed}


def path_of(made: dict[str, Any]) -> str:
    return f"/v1/alert-rules/{made['id']}"


def make_beam(api: Api) -> None:
    """Make the beam `ka`, which has no terminals."""
    beam = {**api.get("/v1/beams/ku-1").json, "name": "another"}
    del beam["id"]
    assert api.call("PUT", "/v1/beams/ka", beam).status == 201


def test_a_rule_is_changed_and_has_another_revision(quiet: Api) -> None:
    made = rule(quiet)
    body = body_of(made, name="longer", limit_s=90, for_s=5, keep_firing_for_s=7, beam="ku-1")
    reply = quiet.call("PUT", path_of(made), body)
    assert reply.status == 200, reply.text
    assert reply.json == {"id": made["id"], "revision": made["revision"] + 1, **body}
    assert reply.headers["ETag"] == f'"{made["revision"] + 1}"'
    assert quiet.get("/v1/alert-rules").json["rules"] == [reply.json]
    entry = quiet.get("/v1/audit?limit=1", caller="administrator").json["entries"][0]
    assert (entry["action"], entry["target"]) == ("set", path_of(made))
    assert entry["before"] == {"id": made["id"], **body_of(made)}
    assert entry["after"] == {"id": made["id"], **body}


def test_what_somebody_else_has_changed_is_not_undone(quiet: Api) -> None:
    made = rule(quiet)
    seen = {"If-Match": f'"{made["revision"]}"'}
    first = quiet.call("PUT", path_of(made), body_of(made, limit_s=90), headers=seen)
    assert first.status == 200, first.text
    second = quiet.call("PUT", path_of(made), body_of(made, name="mine"), headers=seen)
    assert second.status == 412
    assert quiet.get("/v1/alert-rules").json["rules"] == [first.json]


def test_what_somebody_else_has_changed_is_not_deleted(quiet: Api) -> None:
    made = rule(quiet)
    seen = {"If-Match": f'"{made["revision"]}"'}
    changed = quiet.call("PUT", path_of(made), body_of(made, limit_s=90)).json
    assert quiet.call("DELETE", path_of(made), headers=seen).status == 412
    assert quiet.get("/v1/alert-rules").json["rules"] == [changed]
    now = {"If-Match": f'"{changed["revision"]}"'}
    assert quiet.call("DELETE", path_of(made), headers=now).status == 204
    assert quiet.call("DELETE", path_of(made), headers=now).status == 404


def test_a_rule_that_is_not_there_is_not_made(quiet: Api) -> None:
    made = rule(quiet)
    assert quiet.call("DELETE", path_of(made)).status == 204
    assert quiet.call("PUT", path_of(made), body_of(made)).status == 404
    assert quiet.get("/v1/alert-rules").json["rules"] == []


def delete_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the beam `ka` be deleted as soon as a rule's beam has been looked up."""
    check = endpoints._check_beam

    async def looked_up(connection: AsyncConnection, body: alert_models.AlertRuleBody) -> None:
        await check(connection, body)
        assert await registry.remove(connection, Beam, "ka")

    monkeypatch.setattr(endpoints, "_check_beam", looked_up)


def test_no_rule_is_made_for_a_beam_that_is_deleted_meanwhile(
    quiet: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_beam(quiet)
    delete_meanwhile(monkeypatch)
    body = {"name": "late", "kind": "unheard", "limit_s": 60, "beam": "ka"}
    refused = quiet.call("POST", "/v1/alert-rules", body)
    assert refused.status == 409, refused.text
    assert "there is no beam ka" in refused.text
    assert quiet.get("/v1/alert-rules").json["rules"] == []


def test_no_rule_is_given_a_beam_that_is_deleted_meanwhile(
    quiet: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_beam(quiet)
    made = rule(quiet)
    delete_meanwhile(monkeypatch)
    refused = quiet.call("PUT", path_of(made), body_of(made, beam="ka"))
    assert refused.status == 409, refused.text
    assert "there is no beam ka" in refused.text
    assert quiet.get("/v1/alert-rules").json["rules"] == [made]


def test_a_rule_that_goes_with_its_beam_meanwhile_is_not_there(
    quiet: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_beam(quiet)
    made = rule(quiet, beam="ka")
    delete_meanwhile(monkeypatch)
    changed = body_of(made, limit_s=90, beam=None)
    for headers in ({}, {"If-Match": f'"{made["revision"]}"'}):
        refused = quiet.call("PUT", path_of(made), changed, headers=headers)
        assert refused.status == 404, refused.text


def test_what_a_rule_cannot_be_changed_to_is_refused(quiet: Api) -> None:
    made = rule(quiet)
    for status, changed in (
        (409, {"kind": "debt"}),
        (409, {"beam": "nowhere"}),
        (422, {"limit_s": 0}),
        (422, {"limit_s": None}),
        (422, {"version": "1.0"}),
        (422, {"for_s": -1}),
        (422, {"name": ""}),
    ):
        refused = quiet.call("PUT", path_of(made), body_of(made, **changed))
        assert refused.status == status, (changed, refused.text)
    assert quiet.get("/v1/alert-rules").json["rules"] == [made]


def test_what_fires_goes_on_while_the_changed_condition_holds(quiet: Api) -> None:
    made = rule(quiet)
    silent_since(quiet, now_ms() - 600_000)
    (before,) = looked(quiet)
    assert quiet.call("PUT", path_of(made), body_of(made, limit_s=300)).status == 200
    assert looked(quiet) == [before]
    assert quiet.call("PUT", path_of(made), body_of(made, limit_s=3_600)).status == 200
    assert looked(quiet) == []


def test_a_rule_for_another_beam_resolves_what_fires_for_this_one(quiet: Api) -> None:
    make_beam(quiet)
    made = rule(quiet)
    silent_since(quiet, 0)
    assert [one["terminal"] for one in looked(quiet)] == [FIRST]
    assert quiet.call("PUT", path_of(made), body_of(made, beam="ka")).status == 200
    assert looked(quiet) == []


def test_a_changed_condition_has_to_hold_for_its_time_anew(quiet: Api) -> None:
    made = rule(quiet, for_s=3_600)
    silent_since(quiet, 0)
    assert looked(quiet) == []
    # It has been pending since then; after the change, another condition is pending.
    changed = body_of(made, limit_s=30, for_s=0.001)
    assert quiet.call("PUT", path_of(made), changed).status == 200
    # The first check finds that it holds, but it has not held for any time yet.
    assert looked(quiet) == []
    assert len(looked(quiet)) == 1


def test_a_shorter_time_for_the_same_condition_counts_from_when_it_began(quiet: Api) -> None:
    made = rule(quiet, for_s=3_600)
    silent_since(quiet, 0)
    assert looked(quiet) == []
    assert quiet.call("PUT", path_of(made), body_of(made, for_s=0.001)).status == 200
    assert len(looked(quiet)) == 1


def test_a_debt_that_grows_shrinks_and_is_repaid_is_one_alert(quiet: Api) -> None:
    """The forward link of the beam carries 80 Mbit in the rule's ten seconds."""

    async def owe(bits: int) -> None:
        lot = {"beam_id": "ku-1", "link": "forward", "since_ms": now_ms()}
        sides = [(FIRST, -bits), (SECOND, bits)]
        async with quiet.database.transaction() as connection:
            await connection.execute(delete(LedgerLot))
            values = [{**lot, "terminal": node, "bits": owed} for node, owed in sides]
            await connection.execute(insert(LedgerLot), values)

    rule(quiet, "debt", 10)
    seen = set()
    for bits in (80_000_001, 95_000_000, 85_000_000):
        quiet.run(owe(bits))
        (one,) = looked(quiet)
        assert (one["terminal"], one["link"]) == (FIRST, "forward")
        seen.add(one["id"])
    assert len(seen) == 1
    for bits in (80_000_000, 1, 0):
        quiet.run(owe(bits))
        assert looked(quiet) == []
    (over,) = quiet.get("/v1/alerts").json["alerts"]
    assert {over["id"]} == seen
    assert "resolved" in over


def test_a_tenant_changes_no_rule(quiet: Api) -> None:
    settle(quiet)
    made = rule(quiet)
    token = quiet.run(quiet.token(Role.OPERATOR, tenant=NORTH))
    assert quiet.call("PUT", path_of(made), body_of(made), caller=token).status == 403
