"""A service with two tenants, each with a vehicle, and callers of each role and tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role

from tests.control_api.functions.examples import vehicle
from tests.control_api.service.api import Api, now_ms

# The south's numbers and names occur nowhere else, so they reveal a leak.
NORTHERN, SOUTHERN = 41, 9_876_501
NORTH, SOUTH = "north", "south-secret"
SOUTHERN_LONGITUDE = 9.87651
# How often the link was lost at a place that was learned from the south's vehicle.
SOUTHERN_LOSSES = 6_789_123
PASSWORD = "correct horse battery"  # noqa: S105 - a test's


@dataclass(frozen=True)
class Who:
    """A caller: its role, its tenant, and its token."""

    role: Role
    tenant: str | None
    token: str

    def __str__(self) -> str:
        return f"{self.role} of {self.tenant or 'the whole'}"


def settle(api: Api) -> None:
    """Make both tenants, with vehicles, users and reports, and a place that the south learned."""
    places = {"type": "FeatureCollection", "features": [learned_place("learned:1")]}
    done(api, "POST", "/v1/obstructions", places)
    for tenant in (NORTH, SOUTH):
        done(api, "PUT", f"/v1/tenants/{tenant}", {"name": tenant}, caller="administrator")
    for node, tenant, longitude in (
        (NORTHERN, NORTH, 7.5),
        (SOUTHERN, SOUTH, SOUTHERN_LONGITUDE),
    ):
        body = {"beam": "ku-1", "name": f"coach of {tenant}", "tenant": tenant}
        done(api, "PUT", f"/v1/terminals/{node}", body)
        of = f"/v1/terminals/{node}"
        at = rfc3339(moment_of(now_ms()))
        position = {"time": at, "longitude": longitude, "latitude": 46.5}
        done(api, "POST", of + "/positions", position)
        line = {"type": "LineString", "coordinates": [[longitude, 46.5], [longitude, 46.6]]}
        done(api, "PUT", of + "/route", line)
        soon = rfc3339(moment_of(now_ms() + 60_000))
        announced = {"entry": soon, "duration_ms": 30_000, "confidence": 0.9}
        done(api, "POST", of + "/announcements", announced)
        user = {"role": "administrator", "tenant": tenant, "password": PASSWORD}
        done(api, "PUT", f"/v1/users/chief-of-{tenant}", user, caller="administrator")
        token = {"name": f"token of {tenant}", "role": "viewer", "tenant": tenant}
        done(api, "POST", "/v1/tokens", token, caller="administrator")
        of_tenant = {**vehicle(), "tenant": tenant}
        done(api, "PUT", f"/v1/slices/slice-of-{tenant}", of_tenant)


def learned_place(name: str) -> dict[str, Any]:
    """Return a place where the south's vehicle loses its link, as it is exported."""
    axis = {"type": "LineString", "coordinates": [[8.25, 47.0], [8.26, 47.0]]}
    counts = {"lost": SOUTHERN_LOSSES, "held": 1}
    properties = {"kind": "learned", "source": "learned", "oneway": True, **counts}
    return {"type": "Feature", "id": name, "geometry": axis, "properties": properties}


def callers(api: Api) -> list[Who]:
    """Return a caller of each role, of the whole and of the north."""
    found = []
    for role in Role:
        for tenant in (None, NORTH):
            if role in (Role.GATEWAY, Role.AGENT) and tenant is not None:
                # Gateways and agents serve all tenants.
                continue
            node = {Role.GATEWAY: 1, Role.TERMINAL: NORTHERN}.get(role)
            token = api.run(api.token(role, node, tenant=tenant))
            found.append(Who(role, tenant, token))
    return found


def done(api: Api, method: str, path: str, body: object, **options: Any) -> Any:
    """Make a request that has to succeed; return the JSON."""
    answer = api.call(method, path, body, **options)
    assert answer.status < 300, (path, answer.text)
    return answer.json if answer.text else None
