"""Terminals as a file: previewed, applied as a whole or not at all, and downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from underpass_control.roles import Role

from tests.control_api.service.api import FIRST, SECOND, Api, Reply
from tests.control_api.service.test_events import following
from tests.control_api.service.two_tenants import NORTH, NORTHERN, settle

FILE = "/v1/terminals.csv"
NASTY = "<script>alert(1)</script>"


def csv(*lines: str, header: str = "node,beam,name") -> str:
    return "\n".join([header, *lines]) + "\n"


def preview(api: Api, content: str | bytes) -> Reply:
    return api.call("POST", FILE + "/preview", content, content_type="text/csv")


def take(api: Api, content: str | bytes, basis: str | None = None) -> Reply:
    query = "" if basis is None else f"?basis={basis}"
    return api.call("PUT", FILE + query, content, content_type="text/csv")


def terminals(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/v1/terminals").json["terminals"]
    return found


def test_a_file_is_looked_at_taken_and_downloaded_again(api: Api) -> None:
    content = csv(
        f"{FIRST},ku-1,{NASTY},5,north;Night",
        f"{SECOND},ku-1,vehicle {SECOND},1,",
        '31,ku-1,"Coach, ""31""",2,north',
        header="node,beam,name,weight,tags",
    )
    before = terminals(api)
    seen = preview(api, content).json
    assert terminals(api) == before
    assert (seen["new"], seen["changed"], seen["unchanged"], seen["wrong"]) == (1, 1, 1, 0)
    assert [(one["line"], one["node"], one["kind"]) for one in seen["changes"]] == [
        (2, FIRST, "changed"),
        (4, 31, "new"),
    ]
    changed, made = seen["changes"]
    assert set(changed["columns"]) == {"name", "weight", "tags"}
    assert set(changed["before"]) == set(changed["after"]) == {"name", "weight", "tags"}
    assert (changed["before"]["weight"], changed["after"]["weight"]) == (1, 5)
    assert (made["before"], made["after"]["tags"]) == ({}, ["north"])
    taken = take(api, content, seen["basis"])
    assert taken.json == {"new": 1, "changed": 1, "unchanged": 1}
    first, _, third = terminals(api)
    assert (first["name"], first["weight"], first["tags"]) == (NASTY, 5, ["Night", "north"])
    assert (third["name"], third["tags"]) == ('Coach, "31"', ["north"])
    downloaded = api.get(FILE, caller="viewer")
    assert downloaded.headers["Content-Type"].startswith("text/csv")
    assert "attachment" in downloaded.headers["Content-Disposition"]
    again = take(api, downloaded.text).json
    assert again == {"new": 0, "changed": 0, "unchanged": 3}
    entries = api.get("/v1/audit?target=/v1/terminals", caller="administrator").json["entries"]
    done = {one["target"]: one for one in reversed(entries)}
    assert done["/v1/terminals/31"]["after"]["name"] == 'Coach, "31"'
    assert done[f"/v1/terminals/{FIRST}"]["before"]["weight"] == 1
    assert done[FILE]["after"]["unchanged"] == 3


def test_who_follows_hears_of_every_terminal_that_a_file_changes(api: Api) -> None:
    nodes = range(1_000, 2_500)

    async def run() -> list[int]:
        async with following(api, "kinds=terminal") as stream:
            content = csv(*(f"{node},ku-1,coach {node}" for node in nodes))
            taken = await api.ask("PUT", FILE, content, content_type="text/csv")
            assert taken.status == 200, taken.text
            return [(await stream.next())[1]["terminal"] for _ in nodes]

    assert sorted(api.run(run())) == list(nodes)


def test_columns_that_are_not_there_stay_and_empty_cells_are_defaults(api: Api) -> None:
    path = f"/v1/terminals/{FIRST}"
    body = {"beam": "ku-1", "name": "a", "weight": 9, "gateway": 4, "forward_minimum_bps": 8}
    assert api.call("PUT", path, body).status == 200
    assert take(api, f"node,name,weight\n{FIRST},b,\n").status == 200
    found = api.get(path).json
    assert (found["name"], found["weight"]) == ("b", 1)
    assert (found["gateway"], found["forward_minimum_bps"]) == (4, 8)
    assert take(api, f"node,gateway\n{FIRST},\n").status == 200
    assert "gateway" not in api.get(path).json


BAD = [
    ("31,ku-1,", "name is empty"),
    ("32,,b", "beam is empty"),
    ("33,nowhere,b", "there is no beam nowhere"),
    ("0,ku-1,b", "0 is no ipn node number"),
    ("4294967295,ku-1,b", "is no ipn node number"),
    ("34,KU 1,b", "beam"),
    ("35,ku-1," + "x" * 201, "name"),
    ("36,ku-1", "it has 2 cells"),
]


def test_one_bad_line_leaves_all_as_it_was_and_each_is_told(api: Api) -> None:
    before = terminals(api)
    content = csv("30,ku-1,good", *(line for line, _ in BAD))
    seen = preview(api, content).json
    assert (seen["new"], seen["wrong"]) == (1, len(BAD))
    refused = take(api, content)
    assert refused.status == 422
    assert "nothing has been changed" in refused.problem
    for number, ((_, reason), flaw) in enumerate(zip(BAD, seen["flaws"], strict=True), 3):
        assert (flaw["line"], reason in flaw["reason"]) == (number, True), flaw
    told = [(one["pointer"], one["detail"]) for one in refused.json["errors"]]
    assert told == [(f"line {one['line']}", one["reason"]) for one in seen["flaws"]]
    assert terminals(api) == before


@pytest.mark.parametrize(
    ("header", "line", "reason"),
    [
        ("node,tenant", f"{FIRST},nowhere", "there is no tenant nowhere"),
        ("node,weight", f"{FIRST},0", "weight: must be at least 1"),
        ("node,return_minimum_bps", f"{FIRST},-5", "return_minimum_bps: must be at least 0"),
        ("node,name", "-5,x", "node: -5 is no ipn node number, which is 1 to 4294967294"),
        ("node,forward_minimum_bps,forward_maximum_bps", f"{FIRST},9,8", "below"),
        ("node,gateway", f"{FIRST},99999999999", "gateway"),
        ("node,tags", f"{FIRST},{'x' * 33}", "tags"),
        ("node,tags", f"{FIRST},{';'.join(f'tag {n}' for n in range(11))}", "tags"),
    ],
)
def test_values_that_a_terminal_may_not_have(
    unchanged: Api, header: str, line: str, reason: str
) -> None:
    seen = preview(unchanged, csv(line, header=header)).json
    assert seen["wrong"] == 1
    assert reason in seen["flaws"][0]["reason"]


def test_numbers_of_the_ncc_may_be_swapped_but_not_be_given_twice(api: Api) -> None:
    header = "node,opensand_id"
    assert take(api, csv(f"{FIRST},1", f"{SECOND},2", header=header)).status == 200
    assert take(api, csv(f"{FIRST},2", f"{SECOND},1", header=header)).status == 200
    assert [one["opensand_id"] for one in terminals(api)] == [2, 1]
    twice = preview(api, csv(f"{FIRST},1", header=header)).json
    assert f"terminal {SECOND} has opensand_id 1" in twice["flaws"][0]["reason"]
    assert (twice["changed"], twice["wrong"]) == (0, 1)


def test_what_has_changed_since_the_preview_is_not_overwritten(api: Api) -> None:
    content = csv(f"{FIRST},ku-1,mine")
    basis = preview(api, content).json["basis"]
    other = {"beam": "ku-1", "name": "theirs"}
    assert api.call("PUT", f"/v1/terminals/{FIRST}", other).status == 200
    refused = take(api, content, basis)
    assert (refused.status, "look again" in refused.problem) == (412, True)
    assert terminals(api)[0]["name"] == "theirs"
    assert take(api, content, preview(api, content).json["basis"]).status == 200


def _half_wrong(count: int) -> Iterable[str]:
    for number in range(count):
        yield f"{100 + number},{'ku-1' if number % 2 else 'nowhere'},vehicle {number}"


def test_a_hundred_thousand_lines_half_wrong_are_answered_in_a_few_kilobytes(api: Api) -> None:
    content = csv(*_half_wrong(100_000))
    answer = preview(api, content)
    assert answer.status == 200
    assert (answer.json["new"], answer.json["wrong"]) == (50_000, 50_000)
    assert (len(answer.json["flaws"]), len(answer.json["changes"])) == (100, 100)
    assert len(answer.text) < 40_000
    refused = take(api, content)
    assert (refused.status, "50000 lines are wrong" in refused.problem) == (422, True)
    more = preview(api, content + "1,ku-1,one more\n")
    assert (more.status, "more than 100000 lines" in more.problem) == (422, True)
    assert len(terminals(api)) == 2


def test_more_than_may_be_changed_at_once_is_refused_as_a_whole(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("underpass_control.http.terminal_files._MOST_CHANGES", 2)
    refused = take(api, csv(*(f"{node},ku-1,x" for node in (31, 32, 33))))
    assert (refused.status, "3 terminals" in refused.problem) == (422, True)
    assert len(terminals(api)) == 2


def test_a_failure_in_the_middle_leaves_nothing_half_done(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("underpass_control.storage.fleet.put_tags", fails)
    assert take(api, csv("31,ku-1,new", f"{FIRST},ku-1,changed")).status == 500
    assert [one["name"] for one in terminals(api)] == [f"vehicle {FIRST}", f"vehicle {SECOND}"]


def test_many_terminals_are_told_of_as_single_ones_are(api: Api) -> None:
    async def follow() -> list[str]:
        async with api.client.get("/v1/events", headers=api.headers("viewer")) as answer:
            await answer.content.readline()
            await api.ask("PUT", FILE, csv("31,ku-1,new"), content_type="text/csv")
            found: list[str] = []
            while not any("new" in line for line in found):
                found.append((await answer.content.readline()).decode())
            return found

    assert any('"terminal":31' in line for line in api.run(follow()))


def test_a_tenant_downloads_its_own_vehicles_and_takes_no_file(api: Api) -> None:
    settle(api)
    for role in (Role.VIEWER, Role.ADMINISTRATOR):
        token = api.run(api.token(role, tenant=NORTH))
        lines = api.get(FILE, caller=token).text.splitlines()
        assert [line.split(",")[0] for line in lines] == ["node", str(NORTHERN)]
        for method, path in (("PUT", FILE), ("POST", FILE + "/preview")):
            answer = api.call(method, path, csv(), caller=token, content_type="text/csv")
            assert answer.status == 403


@pytest.mark.parametrize("ask", [preview, take])
def test_another_kind_of_file_is_refused(
    unchanged: Api, ask: Callable[[Api, bytes], Reply]
) -> None:
    assert ask(unchanged, b"PK\x03\x04\x00\xff").status == 422
    wrong = unchanged.call("PUT", FILE, "{}", content_type="application/json")
    assert wrong.status == 415
