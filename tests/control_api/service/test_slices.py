"""Slices over REST: their lifecycle, their bounds, and the rights of agents."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from underpass_control.functions.slices import MOST_OF_TENANT
from underpass_control.roles import Role
from underpass_control.storage import slices

from tests.control_api.functions.examples import changed, ground, vehicle
from tests.control_api.service.api import Api, Reply
from tests.control_api.service.two_tenants import NORTH, SOUTH, done, settle

SITE = "/v1/sites/default/slices"


@pytest.fixture
def agent(api: Api) -> str:
    return api.run(api.token(Role.AGENT))


def desired(api: Api, agent: str) -> dict[str, Any]:
    """Return the slices that the agent is sent, by name."""
    found = api.get(SITE, caller=agent).json["slices"]
    return {one["name"]: one for one in found}


def report(api: Api, agent: str, name: str, revision: int, **said: Any) -> Reply:
    body = {"slices": [{"name": name, "revision": revision, **said}]}
    return api.call("POST", SITE, body, caller=agent)


def state(api: Api, name: str = "one") -> str:
    found: str = api.get(f"/v1/slices/{name}").json["state"]
    return found


def container(health: str) -> dict[str, str]:
    return {"name": "proxy.1", "state": "running", "health": health}


def test_a_slice_lives_from_being_set_to_being_gone(api: Api, agent: str) -> None:
    made = api.call("PUT", "/v1/slices/one", ground())
    assert made.status == 201
    assert (made.json["tenant"], made.json["state"]) == ("default", "waiting")
    first = desired(api, agent)["one"]
    assert first["revision"] == made.json["revision"]
    assert report(api, agent, "one", first["revision"], state="failed", detail="no").status == 202
    assert (state(api), api.get("/v1/slices/one").json["detail"]) == ("failed", "no")
    for health, is_shown in (("starting", "degraded"), ("healthy", "running")):
        containers = [container(health)]
        report(api, agent, "one", first["revision"], state="running", containers=containers)
        assert state(api) == is_shown

    scaled = api.call("PUT", "/v1/slices/one/functions/names/replicas", {"replicas": 3})
    assert scaled.json["revision"] > first["revision"]
    assert state(api) == "waiting"
    healed = api.call("POST", "/v1/slices/one/functions/hub/heal")
    told = {one["name"]: one for one in desired(api, agent)["one"]["body"]["functions"]}
    assert (told["names"]["replicas"], told["hub"]["generation"]) == (3, 2)
    # A new configuration keeps the healed generation.
    again = api.call("PUT", "/v1/slices/one", ground())
    assert again.status == 200
    assert {o["name"]: o["generation"] for o in again.json["functions"]}["hub"] == 2
    # A report of an earlier revision does not count for this one.
    report(api, agent, "one", healed.json["revision"], state="running", containers=[])
    assert state(api) == "waiting"

    assert api.call("DELETE", "/v1/slices/one").status == 202
    last = desired(api, agent)["one"]
    assert last["ending"] is True
    assert api.call("PUT", "/v1/slices/one", ground()).status == 409
    # The report that nothing is left counts only for this revision and from this site.
    report(api, agent, "one", again.json["revision"], state="ended")
    other = {"slices": [{"name": "one", "revision": last["revision"], "state": "ended"}]}
    assert api.call("POST", "/v1/sites/other/slices", other, caller=agent).status == 202
    assert state(api) == "ending"
    report(api, agent, "one", last["revision"], state="ended")
    assert api.get("/v1/slices/one").status == 404
    renewed = api.call("PUT", "/v1/slices/one", ground()).json
    assert renewed["revision"] > first["revision"]


def test_a_running_slice_is_not_ended_by_a_report(api: Api, agent: str) -> None:
    revision = api.call("PUT", "/v1/slices/one", vehicle()).json["revision"]
    report(api, agent, "one", revision, state="ended")
    assert state(api) == "waiting"


@pytest.mark.parametrize("name", ["-a", "A", "a.b", "a_b", "a" * 32, "a%20b", "%24a", "1a", "a-"])
def test_a_name_becomes_a_folder_and_a_project_and_is_checked(unchanged: Api, name: str) -> None:
    assert unchanged.call("PUT", f"/v1/slices/{name}", vehicle()).status == 422
    assert unchanged.get("/v1/slices").json["slices"] == []


def test_what_cannot_be_is_refused_with_its_reason(api: Api) -> None:
    body = changed(vehicle(), settings={"client_networks": ["10.0.0.0/8\nx"]})
    assert "proxy: settings/client_networks" in api.call("PUT", "/v1/slices/one", body).problem
    body = copy.deepcopy(vehicle())
    body["functions"][0]["image"] = "evil"
    assert api.call("PUT", "/v1/slices/one", body).status == 422
    body = copy.deepcopy(vehicle())
    body["functions"][0]["generation"] = 7
    assert api.call("PUT", "/v1/slices/one", body).status == 422
    done(api, "PUT", "/v1/slices/one", vehicle())
    path = "/v1/slices/one/functions/{}/replicas"
    assert "1 replicas" in api.call("PUT", path.format("proxy"), {"replicas": 2}).problem
    assert api.call("PUT", path.format("nobody"), {"replicas": 1}).status == 404
    assert "stays" in api.call("PUT", "/v1/slices/one", {**vehicle(), "site": "x"}).problem
    south = {**vehicle(), "tenant": "south"}
    assert api.call("PUT", "/v1/slices/one", south).status == 409
    assert "no tenant" in api.call("PUT", "/v1/slices/two", south).problem


def test_two_who_change_one_slice_are_told(api: Api) -> None:
    tag = api.call("PUT", "/v1/slices/one", vehicle()).headers["ETag"]
    known = {"If-Match": tag}
    assert api.call("PUT", "/v1/slices/one", vehicle(), headers=known).status == 200
    assert api.call("PUT", "/v1/slices/one", vehicle(), headers=known).status == 412
    assert api.call("DELETE", "/v1/slices/one", headers=known).status == 412
    assert api.call("PUT", "/v1/slices/two", vehicle(), headers=known).status == 412


@pytest.mark.parametrize(("shown", "refused"), [(True, 412), (False, 409)])
async def test_of_two_who_change_a_slice_at_once_the_second_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch, shown: bool, refused: int
) -> None:
    tag = (await api.ask("PUT", "/v1/slices/one", ground())).headers["ETag"]
    change, both = slices.change, asyncio.Barrier(2)

    async def together(*given: Any, **more: Any) -> Any:
        # Both have read the slice.
        await both.wait()
        return await change(*given, **more)

    monkeypatch.setattr(slices, "change", together)
    headers = {"If-Match": tag} if shown else {}

    path = "/v1/slices/one/functions/names/replicas"
    asked = [api.ask("PUT", path, {"replicas": n}, headers=headers) for n in (1, 2)]
    assert sorted(reply.status for reply in await asyncio.gather(*asked)) == [200, refused]


def test_a_tenant_has_so_many_slices_and_each_its_own_number(api: Api) -> None:
    for n in range(MOST_OF_TENANT):
        done(api, "PUT", f"/v1/slices/s{n}", vehicle())
    assert str(MOST_OF_TENANT) in api.call("PUT", "/v1/slices/more", vehicle()).problem
    numbers = {one["number"] for one in api.get("/v1/slices").json["slices"]}
    assert numbers == set(range(MOST_OF_TENANT))


def test_a_tenants_operator_has_its_own_slices_and_no_others(api: Api, agent: str) -> None:
    settle(api)
    north = api.run(api.token(Role.OPERATOR, tenant=NORTH))
    made = api.call("PUT", "/v1/slices/mine", vehicle(), caller=north)
    assert made.json["tenant"] == NORTH
    # Numbers of other tenants' slices count as taken, though those slices are not visible.
    numbers = [one["number"] for one in desired(api, agent).values()]
    assert len(set(numbers)) == len(numbers) == 3
    listed = api.get("/v1/slices", caller=north).json["slices"]
    assert {one["name"] for one in listed} == {"mine", f"slice-of-{NORTH}"}
    other = f"/v1/slices/slice-of-{SOUTH}"
    assert api.get(other, caller=north).status == 404
    assert api.call("DELETE", other, caller=north).status == 404
    assert api.call("POST", f"{other}/functions/proxy/heal", caller=north).status == 404
    assert api.call("PUT", other, vehicle(), caller=north).status == 409
    assert (
        api.call("PUT", "/v1/slices/x", {**vehicle(), "tenant": SOUTH}, caller=north).status == 403
    )
    assert desired(api, agent)[f"slice-of-{SOUTH}"]["tenant"] == SOUTH
    entries = api.get("/v1/audit?target=/v1/slices/mine", caller="administrator").json["entries"]
    assert [one["tenant"] for one in entries] == [NORTH]


def test_an_agents_token_is_good_for_nothing_else(api: Api, agent: str) -> None:
    for path in ("/v1/slices", "/v1/terminals", "/v1/session", "/v1/maps", "/v1/events"):
        assert api.get(path, caller=agent).status == 403
    for caller in ("operator", "administrator", "gateway"):
        assert api.get(SITE, caller=caller).status == 403


def test_a_tenant_with_slices_is_not_deleted(api: Api) -> None:
    done(api, "PUT", "/v1/tenants/east", {"name": "East"}, caller="administrator")
    done(api, "PUT", "/v1/slices/one", {**vehicle(), "tenant": "east"})
    refused = api.call("DELETE", "/v1/tenants/east", caller="administrator")
    assert "still has slices" in refused.problem


def test_what_functions_there_are_and_what_may_be_set_is_told(api: Api) -> None:
    found = {one["name"]: one for one in api.get("/v1/functions").json["functions"]}
    assert found["dns"]["most_replicas"] == 4
    assert found["nat"]["capabilities"] == ["NET_ADMIN"]
    assert found["shaper"]["settings"]["properties"]["send_rate_bps"]["minimum"] == 8_000
