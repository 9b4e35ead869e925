"""Each operation of the OpenAPI document, called by each role, of the whole and of a tenant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role
from underpass_control.storage import scope
from underpass_control.storage.models import Base

from tests.control_api.service.api import Api, now_ms
from tests.control_api.service.two_tenants import (
    NORTH,
    NORTHERN,
    SOUTH,
    SOUTHERN,
    SOUTHERN_LONGITUDE,
    SOUTHERN_LOSSES,
    Who,
    callers,
    settle,
)

_TABLE = Path(__file__).parents[3] / "docs" / "access.md"
# Texts that reveal the south's data.
MARKS = (SOUTH, str(SOUTHERN), str(SOUTHERN_LONGITUDE), str(SOUTHERN_LOSSES))
# Nothing has these names, so requests do no harm.
_NOTHING = {
    "beam": "ku-1",
    "obstruction": "none",
    "source": "none",
    "gateway": "1",
    "user": "nobody",
    "token": "987654321",
    "tenant": "no-tenant",
    "enrolment": "987654321",
    "node": "987654321",
    "intervention": "987654321",
    "alert": "987654321",
    "rollout": "987654321",
    "rule": "987654321",
    "target": "987654321",
    "link": "forward",
    "version": "1",
    "slice": "none",
    "function": "none",
    "site": "none",
    **dict.fromkeys("zxy", "0"),
}


@dataclass(frozen=True)
class Operation:
    """One operation, as the document declares it."""

    method: str
    path: str
    roles: frozenset[str]
    tenancy: str
    streams: bool
    takes_terminal: bool

    def path_for(self, terminal: int | None) -> str:
        """Return its path for a vehicle, which is in the path or, if it takes one, in the query."""
        path = self.path.format(terminal=terminal, **_NOTHING)
        in_query = terminal is not None and self.takes_terminal and "{terminal}" not in self.path
        return f"{path}?terminal={terminal}" if in_query else path


def operations(api: Api) -> list[Operation]:
    """Return the operations that need a token or a session."""
    document = api.get("/openapi.json", caller=None).json
    return [
        Operation(
            method.upper(),
            path,
            frozenset(one["x-roles"]),
            one["x-tenancy"],
            "text/event-stream" in json.dumps(one["responses"]),
            "{terminal}" in path or any(p["name"] == "terminal" for p in one.get("parameters", [])),
        )
        for path, methods in document["paths"].items()
        for method, one in methods.items()
        if "security" in one
    ]


def denial(one: Operation, who: Who, terminal: int | None) -> int | None:
    """Return the status with which a request must be denied; None if it must not."""
    if who.role not in one.roles:
        return 403
    if who.role is Role.TERMINAL and one.takes_terminal and terminal not in (None, NORTHERN):
        # A terminal sees and reports only its own data.
        return 403
    if who.tenant is not None and one.tenancy == "whole":
        return 403
    if who.tenant is not None and one.tenancy == "vehicle":
        if terminal is None:
            return 403
        if terminal != NORTHERN:
            return 404
    return None


async def status_of(api: Api, one: Operation, path: str, token: str) -> int:
    """Make a request with an incomplete body; return the status; a stream is not read."""
    body = "{}" if one.method in ("PUT", "POST") else None
    headers = {**api.headers(token), "Content-Type": "application/json"}
    async with api.client.request(one.method, path, data=body, headers=headers) as answer:
        return answer.status


def test_each_pair_of_role_and_operation_is_allowed_or_denied_as_declared(api: Api) -> None:
    settle(api)
    asked = denied = 0
    for who in callers(api):
        for one in operations(api):
            for terminal in (NORTHERN, SOUTHERN, None) if one.takes_terminal else (None,):
                if terminal is None and "{terminal}" in one.path:
                    continue
                expected = denial(one, who, terminal)
                if expected is None and one.method == "DELETE" and "{terminal}" in one.path:
                    # It would delete the target of the next request.
                    continue
                path = one.path_for(terminal)
                status = api.run(status_of(api, one, path, who.token))
                asked += 1
                if expected is None:
                    assert status not in (401, 403, 500), (str(who), one.method, path, status)
                else:
                    assert status == expected, (str(who), one.method, path, status)
                    denied += 1
    assert asked > 400
    assert denied > 150


def test_the_documents_table_is_what_is_declared(api: Api) -> None:
    rows = [
        f"| `{one.method} {one.path}` | {', '.join(sorted(one.roles))} | {one.tenancy} |"
        for one in sorted(operations(api), key=lambda one: (one.path, one.method))
    ]
    found = re.findall(r"^\| `[A-Z]+ /.*\|$", _TABLE.read_text(), re.MULTILINE)
    assert found == rows, "docs/access.md says otherwise; it should be\n" + "\n".join(rows)


def test_each_table_has_a_rule_for_tenants() -> None:
    ruled = [*scope.SHARED, *scope.OF_TENANT, *scope.OF_TERMINAL, *scope.OF_USER, *scope.REFUSED]
    assert sorted(ruled) == sorted(Base.metadata.tables)


def reads(api: Api) -> Iterator[Operation]:
    """Yield the operations that are read at once."""
    return (one for one in operations(api) if one.method == "GET" and not one.streams)


def test_nothing_that_a_tenant_reads_tells_of_another(api: Api) -> None:
    settle(api)
    everybody = callers(api)
    told: set[str] = set()
    for one in reads(api):
        for terminal in (NORTHERN, SOUTHERN, None) if one.takes_terminal else (None,):
            if terminal is None and "{terminal}" in one.path:
                continue
            path = one.path_for(terminal)
            for who in everybody:
                text = api.get(path, caller=who.token).text
                if who.tenant is None:
                    told.update(mark for mark in MARKS if mark in text)
                elif terminal != SOUTHERN:
                    leaked = [mark for mark in MARKS if mark in text]
                    assert not leaked, (str(who), path, text)
    # All of it exists, and is shown to callers that may see it.
    assert told == set(MARKS)


_IDS = st.one_of(
    st.sampled_from([SOUTHERN, NORTHERN, 11, 12, 0, 2**32, 2**63, -1]).map(str),
    st.integers(-5, 40).map(str),
    st.sampled_from([SOUTH, NORTH, f"chief-of-{SOUTH}", f"chief-of-{NORTH}", "ku-1", "*", "%"]),
    st.text(max_size=12),
)


def test_ids_and_cursors_of_any_kind_read_nothing_of_another_tenant(api: Api) -> None:
    settle(api)
    northern = [who for who in callers(api) if who.tenant == NORTH]
    cursors = [
        found["next"]
        for path in ("/v1/terminals", "/v1/positions", "/v1/users", "/v1/tokens", "/v1/audit")
        if "next" in (found := api.get(f"{path}?limit=1", caller="administrator").json)
    ]
    assert len(cursors) == 5
    all_reads = list(reads(api))

    @settings(
        max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(data=st.data())
    def fuzz(data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(all_reads))
        who = data.draw(st.sampled_from(northern))
        names = re.findall(r"{(\w+)}", one.path)
        values = {name: data.draw(_IDS) for name in names}
        quoted = {name: _quoted(value) for name, value in values.items()}
        query = {
            name: data.draw(strategy)
            for name, strategy in {
                "cursor": st.sampled_from(cursors),
                "terminal": _IDS,
                "beam": st.just("ku-1"),
                "target": _IDS,
                "actor": _IDS,
            }.items()
            if data.draw(st.booleans())
        }
        text = "&".join(f"{name}={_quoted(value)}" for name, value in query.items())
        answer = api.get(f"{one.path.format(**quoted)}?{text}", caller=who.token)
        assert answer.status < 500, answer.text
        if answer.status < 300:
            # An error may repeat the requested ids.
            assert not [mark for mark in MARKS if mark in answer.text], answer.text

    fuzz()


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "replace"))


def test_what_is_nearly_a_token_is_nobodys(api: Api) -> None:
    tokens = [api.tokens["administrator"], api.run(api.token(Role.VIEWER, tenant=None))]

    @settings(
        max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(data=st.data())
    def fuzz(data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(tokens))
        at = data.draw(st.integers(0, len(token) - 1))
        letter = data.draw(st.sampled_from("abcXYZ019-_"))
        changed = data.draw(
            st.sampled_from(
                [token[:at], token + letter, token[:at] + letter + token[at + 1 :], token.lower()]
            )
        )
        if changed not in tokens:
            assert api.get("/v1/terminals", caller=changed).status in (401, 429)

    fuzz()


@pytest.mark.parametrize("role", ["operator", "administrator"])
def test_a_tenants_people_change_nothing_of_another(api: Api, role: str) -> None:
    settle(api)
    token = api.run(api.token(Role(role), tenant=NORTH))
    before = _all(api)
    position = {"time": _now(), "longitude": 1.0, "latitude": 1.0}
    both = {"positions": [{**position, "terminal": one} for one in (NORTHERN, SOUTHERN)]}
    south = f"/v1/terminals/{SOUTHERN}"
    line = {"type": "LineString", "coordinates": [[1, 1], [2, 2]]}
    rollout = {"name": "x", "terminals": [SOUTHERN], "settings": {}, "whole": True}
    user = {"role": "viewer", "password": "a long enough password"}
    number = next(
        one["id"]
        for one in api.get("/v1/tokens", caller="administrator").json["tokens"]
        if one.get("tenant") == SOUTH
    )
    for method, path, body in (
        ("POST", "/v1/positions", both),
        ("POST", south + "/positions", position),
        ("PUT", south + "/route", line),
        ("DELETE", south + "/route", None),
        ("PUT", south + "/settings", {}),
        ("POST", "/v1/rollouts", rollout),
        ("PUT", south, {"beam": "ku-1", "name": "mine", "tenant": NORTH}),
        ("DELETE", south, None),
        ("PUT", f"/v1/users/chief-of-{SOUTH}", user),
        ("DELETE", f"/v1/users/chief-of-{SOUTH}", None),
        ("DELETE", f"/v1/users/chief-of-{SOUTH}/sessions", None),
        ("PUT", "/v1/users/spy", {**user, "tenant": SOUTH}),
        ("POST", "/v1/tokens", {"name": "spy", "role": "viewer", "tenant": SOUTH}),
        ("POST", "/v1/tokens", {"name": "spy", "role": "terminal", "node": SOUTHERN}),
        ("POST", "/v1/tokens", {"name": "spy", "role": "gateway", "node": 1}),
        ("DELETE", f"/v1/tokens/{number}", None),
        ("PUT", f"/v1/tenants/{SOUTH}", {"name": "mine"}),
    ):
        status = api.call(method, path, body, caller=token).status
        assert status in (403, 404, 409, 422), (method, path, status)
    assert _all(api) == before


def _all(api: Api) -> list[Any]:
    lists = ("terminals", "positions", "users", "tokens", "tenants", "audit")
    paths = [*(f"/v1/{one}" for one in lists), f"/v1/terminals/{SOUTHERN}/route"]
    found = [api.get(path, caller="administrator").json for path in paths]
    return [{k: v for k, v in one.items() if k != "next"} for one in found]


def _now() -> str:
    return rfc3339(moment_of(now_ms()))
