"""The log of changes: every change is recorded."""

from __future__ import annotations

from typing import Any

from underpass_control.access import audit
from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.pruning import prune
from underpass_control.roles import Role

from tests.control_api.functions.examples import vehicle
from tests.control_api.service.api import FIRST, Api, now_ms
from tests.control_api.service.two_tenants import (
    NORTH,
    NORTHERN,
    PASSWORD,
    SOUTH,
    SOUTHERN,
    done,
    settle,
)

BEAM = {"name": "Ka", "forward_capacity_bps": 9_000, "return_capacity_bps": 1_000}
BOX = [[7.0, 46.0], [7.1, 46.0], [7.1, 46.1], [7.0, 46.0]]
AREA = {"type": "Feature", "id": "wood", "geometry": {"type": "Polygon", "coordinates": [BOX]}}
LINE = {"type": "LineString", "coordinates": [[7.5, 46.5], [7.5, 46.6]]}


def entries(api: Api, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/v1/audit{query}", caller="administrator").json[
        "entries"
    ]
    return found


def test_an_entry_says_who_what_from_where_and_how_it_was_before_and_after(api: Api) -> None:
    assert api.call("PUT", "/v1/beams/ka", BEAM).status == 201
    assert api.call("PUT", "/v1/beams/ka", {**BEAM, "name": "Ka 2"}).status == 200
    assert api.call("DELETE", "/v1/beams/ka").status == 204
    deleted, changed, made = entries(api)[:3]
    assert [one["action"] for one in (made, changed, deleted)] == ["set", "set", "delete"]
    assert "before" not in made
    assert changed["before"] == made["after"]
    assert changed["after"] == {**made["after"], "name": "Ka 2"} == deleted["before"]
    assert "after" not in deleted
    assert changed["target"] == "/v1/beams/ka"
    assert (changed["actor_kind"], changed["actor"]) == ("token", "the tests' operator")
    assert changed["address"] == "127.0.0.1"
    assert abs(now_ms() - milliseconds_of(changed["time"])) < 60_000


def test_a_tenant_sees_no_changes_of_a_deleted_one_of_its_id(api: Api) -> None:
    tenant, user = f"/v1/tenants/{NORTH}", "/v1/users/ada"
    body = {"role": "viewer", "tenant": NORTH, "password": PASSWORD}
    done(api, "PUT", tenant, {"name": "Northern Coaches"}, caller="administrator")
    done(api, "PUT", user, body, caller="administrator")
    done(api, "DELETE", user, None, caller="administrator")
    done(api, "DELETE", tenant, None, caller="administrator")
    done(api, "PUT", tenant, {"name": "Nordic Ferries"}, caller="administrator")
    chief = api.run(api.token(Role.ADMINISTRATOR, tenant=NORTH))
    (made,) = api.get("/v1/audit", caller=chief).json["entries"]
    assert (made["target"], made["after"]) == (tenant, {"name": "Nordic Ferries"})
    assert len(entries(api, f"?target={user}")) == 2


def test_each_endpoint_that_changes_something_writes_it_down(api: Api) -> None:
    """All that change anything, except nodes' reports, are tried or listed here."""
    token = api.call("POST", "/v1/tokens", {"name": "t", "role": "viewer"}, caller="administrator")
    user = {"role": "viewer", "password": PASSWORD}
    of_first = f"/v1/terminals/{FIRST}"
    later = rfc3339(moment_of(now_ms() + 600_000))
    freeze = "/v1/interventions/2"
    intervention = {"kind": "freeze", "beam": "ku-1", "until": later}
    first = {"kind": "maintenance", "terminal": FIRST, "until": later}
    assert api.call("POST", "/v1/interventions", first).status == 201
    tried = [
        (
            "POST",
            "/v1/alert-rules",
            "/v1/alert-rules",
            {"name": "x", "kind": "unheard", "limit_s": 9},
        ),
        (
            "PUT",
            "/v1/alert-rules/{rule}",
            "/v1/alert-rules/1",
            {"name": "y", "kind": "unheard", "limit_s": 8},
        ),
        ("DELETE", "/v1/alert-rules/{rule}", "/v1/alert-rules/1", None),
        (
            "POST",
            "/v1/alert-targets",
            "/v1/alert-targets",
            {"name": "x", "url": "https://example.com/"},
        ),
        ("DELETE", "/v1/alert-targets/{target}", "/v1/alert-targets/1", None),
        ("POST", "/v1/interventions", "/v1/interventions", intervention),
        ("PUT", "/v1/interventions/{intervention}", freeze, {}),
        ("DELETE", "/v1/interventions/{intervention}", freeze, None),
        ("PUT", "/v1/beams/{beam}", "/v1/beams/ka", BEAM),
        ("PUT", "/v1/beams/{beam}/capacity", "/v1/beams/ka/capacity", {}),
        ("DELETE", "/v1/beams/{beam}", "/v1/beams/ka", None),
        ("PUT", "/v1/terminals/{terminal}", of_first, {"beam": "ku-1", "name": "x"}),
        ("PUT", "/v1/terminals/{terminal}/route", of_first + "/route", LINE),
        ("DELETE", "/v1/terminals/{terminal}/route", of_first + "/route", None),
        ("PUT", "/v1/terminals/{terminal}/settings", of_first + "/settings", {}),
        ("PUT", "/v1/gateways/{gateway}/settings", "/v1/gateways/1/settings", {}),
        (
            "POST",
            "/v1/rollouts",
            "/v1/rollouts",
            {"name": "x", "terminals": [FIRST], "settings": {}, "whole": True},
        ),
        (
            "PUT",
            "/v1/rollouts/{rollout}/state",
            "/v1/rollouts/1/state",
            {"state": "paused"},
        ),
        ("PUT", "/v1/terminals/{terminal}/tags", of_first + "/tags", {"tags": ["east"]}),
        ("DELETE", "/v1/terminals/{terminal}", of_first, None),
        (
            "POST",
            "/v1/obstructions",
            "/v1/obstructions",
            {"type": "FeatureCollection", "features": [AREA]},
        ),
        ("DELETE", "/v1/obstructions/{obstruction}", "/v1/obstructions/wood", None),
        ("PUT", "/v1/tenants/{tenant}", "/v1/tenants/east", {"name": "East"}),
        ("DELETE", "/v1/tenants/{tenant}", "/v1/tenants/east", None),
        ("PUT", "/v1/slices/{slice}", "/v1/slices/one", vehicle()),
        (
            "PUT",
            "/v1/slices/{slice}/functions/{function}/replicas",
            "/v1/slices/one/functions/proxy/replicas",
            {"replicas": 1},
        ),
        (
            "POST",
            "/v1/slices/{slice}/functions/{function}/heal",
            "/v1/slices/one/functions/proxy/heal",
            None,
        ),
        ("DELETE", "/v1/slices/{slice}", "/v1/slices/one", None),
        ("PUT", "/v1/users/{user}", "/v1/users/ada", user),
        ("POST", "/v1/session", "/v1/session", {"name": "ada", "password": PASSWORD}),
        ("DELETE", "/v1/users/{user}/sessions", "/v1/users/ada/sessions", None),
        ("DELETE", "/v1/users/{user}", "/v1/users/ada", None),
        ("POST", "/v1/tokens", "/v1/tokens", {"name": "t", "role": "viewer"}),
        ("DELETE", "/v1/tokens/{token}", f"/v1/tokens/{token.json['id']}", None),
    ]
    for method, _, path, body in tried:
        before = len(entries(api, "?limit=1000"))
        # The freeze is changed before it is released.
        known = {"If-Match": '"1"' if method == "PUT" else '"2"'} if path == freeze else None
        answer = api.call(method, path, body, caller="administrator", headers=known)
        assert answer.status < 300, (path, answer.text)
        assert len(entries(api, "?limit=1000")) == before + 1, path
    # A user's own session is tested in test_sessions.py, forgiving in test_ledger.py,
    # acknowledging in test_alerts.py, files of terminals in test_terminal_files.py, maps in
    # test_maps.py, and their tiles in test_tiles.py.
    others = {
        ("DELETE", "/v1/session"),
        ("DELETE", "/v1/sessions"),
        ("PUT", "/v1/password"),
        ("POST", "/v1/beams/{beam}/ledger/forgive"),
        # In test_enrolments.py: they need an authority.
        ("POST", "/v1/enrolments"),
        ("DELETE", "/v1/enrolments/{enrolment}"),
        ("DELETE", "/v1/nodes/{node}/certificates"),
        ("POST", "/v1/alerts/{alert}/acknowledgement"),
        ("PUT", "/v1/terminals.csv"),
        ("PUT", "/v1/maps/{source}"),
        ("PUT", "/v1/maps/{source}/tiles"),
        ("DELETE", "/v1/maps/{source}"),
    }
    reported_or_without_effect = {
        ("POST", "/v1/positions"),
        ("POST", "/v1/terminals/{terminal}/positions"),
        ("POST", "/v1/terminals/{terminal}/announcements"),
        ("POST", "/v1/reports"),
        ("POST", "/v1/sites/{site}/slices"),
        ("POST", "/v1/beams/{beam}/what-if"),
        # Recorded when something is given, but not when it is given again.
        ("POST", "/v1/node/enrolment"),
        ("POST", "/v1/node/certificate"),
        ("POST", "/v1/gateways/{gateway}/certificates"),
        ("POST", "/v1/gateways/{gateway}/streams"),
        ("POST", "/v1/gateways/{gateway}/streams/refused"),
        ("POST", "/v1/terminals.csv/preview"),
        ("POST", "/v1/terminals/{terminal}/settings/preview"),
        ("POST", "/v1/gateways/{gateway}/settings/preview"),
    }
    # It changes nothing, but shows clients' destinations: tested in test_streams.py.
    shown = {("GET", "/v1/terminals/{terminal}/streams")}
    changing = {(one.method, one.path) for one in api.service.endpoints if one.method != "GET"}
    assert changing == {(m, p) for m, p, *_ in tried} | others | reported_or_without_effect
    assert {(e.method, e.path) for e in api.service.endpoints if e.is_recorded} == (
        changing - reported_or_without_effect
    ) | shown


def test_what_is_refused_is_not_written_down(api: Api) -> None:
    before = entries(api)
    assert api.call("PUT", "/v1/beams/ka", BEAM, caller="viewer").status == 403
    assert api.call("PUT", "/v1/beams/ka", {}).status == 422
    assert api.call("DELETE", "/v1/beams/ku-1").status == 409
    assert api.call("DELETE", "/v1/terminals/99").status == 404
    stale = {"If-Match": '"99"'}
    assert api.call("PUT", "/v1/beams/ku-1", BEAM, headers=stale).status == 412
    assert entries(api) == before


def test_secrets_are_not_in_it(api: Api) -> None:
    made = api.call("POST", "/v1/tokens", {"name": "t", "role": "viewer"}, caller="administrator")
    user = {"role": "viewer", "password": PASSWORD}
    assert api.call("PUT", "/v1/users/ada", user, caller="administrator").status == 201
    text = api.get("/v1/audit", caller="administrator").text
    assert made.json["token"] not in text
    assert PASSWORD not in text
    assert "argon2" not in text


def test_pages_hold_each_entry_once_the_newest_first(api: Api) -> None:
    for n in range(7):
        api.call("PUT", "/v1/beams/ka", {**BEAM, "name": f"Ka {n}"})
    whole = entries(api, "?limit=1000")
    pages = api.pages("/v1/audit?limit=3", caller="administrator")
    assert [one for page in pages for one in page["entries"]] == whole
    assert [one["id"] for one in whole] == sorted((one["id"] for one in whole), reverse=True)


def test_it_is_filtered_by_time_actor_and_target(api: Api) -> None:
    api.call("PUT", "/v1/beams/ka", BEAM)
    api.call("PUT", "/v1/beams/k%25", BEAM)
    begins = entries(api, "?target=/v1/beams/ka")
    assert [one["target"] for one in begins] == ["/v1/beams/ka"]
    # The filter is a prefix, not a pattern.
    assert entries(api, "?target=/v1/%25") == []
    assert {one["actor"] for one in entries(api, "?actor=the%20tests'%20operator")} == {
        "the tests' operator"
    }
    assert entries(api, "?actor=nobody") == []
    later = rfc3339(moment_of(now_ms() + 60_000))
    assert entries(api, f"?since={later}") == []
    assert entries(api, f"?until={later}")


def test_a_tenants_administrator_sees_the_changes_of_the_tenant_only(api: Api) -> None:
    settle(api)
    token = api.run(api.token(Role.ADMINISTRATOR, tenant=NORTH))
    seen = api.get("/v1/audit?limit=1000", caller=token)
    targets = {one["target"] for one in seen.json["entries"]}
    assert {f"/v1/terminals/{NORTHERN}", f"/v1/users/chief-of-{NORTH}"} <= targets
    assert {one["tenant"] for one in seen.json["entries"]} == {NORTH}
    assert SOUTH not in seen.text


def test_a_tenant_sees_who_of_the_whole_changed_its_own_and_nothing_of_the_rest(api: Api) -> None:
    settle(api)
    token = api.run(api.token(Role.ADMINISTRATOR, tenant=NORTH))

    def seen() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.get("/v1/audit?limit=1000", caller=token).json["entries"]
        return found

    before = seen()
    later = rfc3339(moment_of(now_ms() + 600_000))
    rate = {"kind": "rate", "forward_bps": 5, "until": later}
    whole: list[tuple[str, str, Any]] = [
        ("PUT", "/v1/beams/ku-1", BEAM),
        ("PUT", "/v1/beams/ku-1/capacity", {}),
        ("PUT", "/v1/gateways/1/settings", {}),
        ("PUT", f"/v1/terminals/{SOUTHERN}/tags", {"tags": ["east"]}),
        ("PUT", f"/v1/terminals/{SOUTHERN}/settings", {}),
        ("POST", "/v1/interventions", {"kind": "freeze", "beam": "ku-1", "until": later}),
        ("POST", "/v1/interventions", {**rate, "terminal": SOUTHERN}),
        ("POST", "/v1/obstructions", {"type": "FeatureCollection", "features": [AREA]}),
        ("POST", "/v1/alert-rules", {"name": "x", "kind": "unheard", "limit_s": 9}),
    ]
    for method, path, body in whole:
        assert api.call(method, path, body).status < 300, path
    assert seen() == before
    own: list[tuple[str, str, Any]] = [
        ("PUT", f"/v1/terminals/{NORTHERN}/tags", {"tags": ["east"]}),
        ("PUT", f"/v1/terminals/{NORTHERN}/settings", {}),
        ("POST", "/v1/interventions", {**rate, "terminal": NORTHERN}),
    ]
    for method, path, body in own:
        assert api.call(method, path, body).status < 300, path
        newest = seen()[0]
        assert newest["target"].startswith(path)
        assert (newest["actor"], newest["tenant"]) == ("the tests' operator", NORTH)
    assert len(seen()) == len(before) + len(own)


def test_what_goes_to_another_tenant_tells_neither_of_the_other(api: Api) -> None:
    settle(api)
    body = {"beam": "ku-1", "name": "bought coach", "tenant": NORTH}
    user = {"role": "viewer", "tenant": NORTH}
    file = f"node,name,beam,tenant\n{NORTHERN},sold coach,ku-1,{SOUTH}\n"
    assert api.call("PUT", f"/v1/terminals/{SOUTHERN}", body).status == 200
    of_south = f"/v1/users/chief-of-{SOUTH}"
    assert api.call("PUT", of_south, user, caller="administrator").status == 200
    taken = api.call("PUT", "/v1/terminals.csv", file, content_type="text/csv")
    assert taken.status == 200, taken.text

    def seen(tenant: str) -> str:
        token = api.run(api.token(Role.ADMINISTRATOR, tenant=tenant))
        return api.get("/v1/audit?limit=1000", caller=token).text

    north, south = seen(NORTH), seen(SOUTH)
    # The other tenant appears only in names: here in the user's.
    assert SOUTH not in north.replace(of_south, "").replace(f"chief-of-{SOUTH}", "")
    assert NORTH not in south
    assert "bought coach" in north
    assert "sold coach" in south
    assert f"coach of {SOUTH}" in south
    told = [(one["action"], one["tenant"]) for one in entries(api, f"?target={of_south}")]
    assert told == [("set", NORTH), ("leave", SOUTH), ("set", SOUTH)]


def test_a_route_that_the_whole_sets_is_the_tenants_to_see(api: Api) -> None:
    settle(api)
    route = f"/v1/terminals/{NORTHERN}/route"
    assert api.call("DELETE", route).status == 204
    token = api.run(api.token(Role.ADMINISTRATOR, tenant=NORTH))
    seen = api.get(f"/v1/audit?target={route}", caller=token).json["entries"]
    assert [one["action"] for one in seen] == ["delete", "set"]


def test_states_that_are_too_long_are_said_to_be_so(api: Api) -> None:
    steps = [
        {"from": rfc3339(moment_of(now_ms() + 1000 * n)), "rate_bps": 10**9 + n}
        for n in range(1, 1000)
    ]
    answer = api.call("PUT", "/v1/beams/ku-1/capacity", {"forward": steps})
    assert answer.status == 200, answer.text
    after = entries(api)[0]["after"]
    assert after["kept"] is False
    assert after["bytes"] > 16_384


def test_old_entries_are_pruned(api: Api) -> None:
    assert entries(api)
    assert api.run(prune(api.database, audit.prune, now_ms() - 60_000)) == 0
    assert api.run(prune(api.database, audit.prune, now_ms() + 1_000)) > 0
    assert entries(api) == []
