"""Nodes' reports about themselves: stored for each, shown to those concerned, trusted no more."""

from __future__ import annotations

from typing import Any

from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role

from tests.control_api.service.api import FIRST, SECOND, Api
from tests.control_api.service.test_reports import HUB, entry, link, post, refusal, status, taken
from tests.control_api.service.two_tenants import NORTH, NORTHERN, SOUTHERN, settle

END_MS = 1_803_006_000_000


def said(version: str = "1.0.0", **more: object) -> dict[str, object]:
    return {"version": version, **more}


def of(api: Api, terminal: int = FIRST, caller: str = "operator") -> Any:
    answer = api.get(f"/v1/terminals/{terminal}/node", caller=caller)
    assert answer.status == 200, answer.text
    return answer.json


def test_the_last_word_of_a_terminal_about_itself_is_shown(api: Api) -> None:
    assert of(api) == {"node": FIRST, "role": "terminal"}
    taken(api, entry(status(node=said(certificate_end_ms=END_MS))))
    shown = of(api, caller="first")
    assert shown["version"] == "1.0.0"
    assert shown["certificate_end"] == rfc3339(moment_of(END_MS))
    # Reports without it, and older ones that come late, change nothing.
    taken(api, entry(status()))
    taken(api, entry(status(node=said("0.9.0")), age_ms=60_000))
    assert of(api) == shown
    taken(api, entry(status(node=said("1.1.0")), age_ms=0))
    assert of(api)["version"] == "1.1.0"
    assert "certificate_end" not in of(api)
    assert api.get("/v1/terminals/4000/node").status == 404
    assert api.get(f"/v1/terminals/{SECOND}/node", caller="first").status == 403


def test_nodes_are_listed_page_by_page_and_a_gateway_speaks_for_itself(api: Api) -> None:
    taken(api, entry(status(link(FIRST), node=said("1.0"))))
    taken(api, entry(status(link(SECOND), node=said("1.1")), SECOND))
    taken(api, entry(status(link(FIRST, "forward"), node=said("2.0")), HUB))
    listed = [one for page in api.pages("/v1/nodes?limit=1") for one in page["nodes"]]
    assert [(one["node"], one["role"], one["version"]) for one in listed] == [
        (HUB, "gateway", "2.0"),
        (FIRST, "terminal", "1.0"),
        (SECOND, "terminal", "1.1"),
    ]
    for role, nodes in (("gateway", [HUB]), ("terminal", [FIRST, SECOND])):
        pages = api.pages(f"/v1/nodes?role={role}&limit=1")
        assert [one["node"] for page in pages for one in page["nodes"]] == nodes
    assert api.get("/v1/nodes?role=hub").status == 400
    for wrong in ("x", "MQ", "IjE6Ig", "Ijk5OTk5OTk5OTk5OTk5OTk5OTk5OngiCg"):
        assert api.get(f"/v1/nodes?cursor={wrong}").status in (200, 400)


def test_a_token_for_any_gateway_fills_no_table_with_gateways(api: Api) -> None:
    token = api.run(api.token(Role.GATEWAY))
    for node in range(100, 110):
        taken(
            api, entry(status(link(FIRST, "forward"), node=said()), node), node=node, caller=token
        )
    gateways = [one["node"] for one in api.get("/v1/nodes").json["nodes"]]
    # The first gateway that reported the terminal has it; the others have none.
    assert gateways == [100]


def test_a_gateway_with_a_terminals_number_does_not_speak_for_the_terminal(api: Api) -> None:
    taken(api, entry(status(node=said("1.0"))))
    token = api.run(api.token(Role.GATEWAY, FIRST))
    made = status(link(SECOND, "forward"), node=said("6.6"))
    post(api, entry(made, FIRST), caller=token, node=FIRST)
    assert of(api)["version"] == "1.0"


def test_what_is_no_version_or_end_is_refused_alone(api: Api) -> None:
    for wrong in (
        said(""),
        said("1" * 65),
        said("1 2"),
        said("1\n2"),
        said("<b>\u00e4"),
        {"version": 1},
        {},
        said(certificate_end_ms=-1),
        said(certificate_end_ms=253_402_300_800_000),
        said(certificate_end_ms="never"),
    ):
        assert "node" in refusal(api, status(node=wrong)), wrong
    assert of(api) == {"node": FIRST, "role": "terminal"}
    taken(api, entry(status(node=said(certificate_end_ms=253_402_300_799_999))))
    assert of(api)["certificate_end"].startswith("9999-12-31T23:59:59")


def test_a_tenant_sees_its_own_vehicles_only(api: Api) -> None:
    settle(api)
    for node in (NORTHERN, SOUTHERN):
        taken(api, entry(status(link(node), node=said(f"of-{node}")), node))
    taken(api, entry(status(link(NORTHERN, "forward"), node=said("hub")), HUB))
    token = api.run(api.token(Role.VIEWER, tenant=NORTH))
    assert [one["node"] for one in api.get("/v1/nodes", caller=token).json["nodes"]] == [NORTHERN]
    assert api.get("/v1/nodes?role=gateway", caller=token).json["nodes"] == []
    assert of(api, NORTHERN, token)["version"] == f"of-{NORTHERN}"
    assert api.get(f"/v1/terminals/{SOUTHERN}/node", caller=token).status == 404


def test_it_goes_with_its_terminal(api: Api) -> None:
    taken(api, entry(status(node=said()), age_ms=0))
    assert api.call("DELETE", f"/v1/terminals/{FIRST}").status == 204
    assert api.get("/v1/nodes").json["nodes"] == []
