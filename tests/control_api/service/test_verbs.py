"""The verbs that ask a running service."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner
from underpass_control import questions
from underpass_control.cli import app
from underpass_control.instants import moment_of

from dama.prediction.geojson import to_geojson
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_plan_stream import HUB, serve
from tests.control_api.service.test_positions import position
from tests.control_api.service.test_reports import entry, status, taken
from tests.control_api.service.test_streams import answered, stream
from tests.dama.prediction.test_laws import MAP


class Shell:
    """Runs verbs against the service."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __call__(self, *arguments: str, status: int = 0, caller: str = "operator") -> str:
        """Run a verb, and return what it prints."""
        return self._api.run(self.running(*arguments, status=status, caller=caller))

    async def running(self, *arguments: str, status: int = 0, caller: str = "operator") -> str:
        """Run a verb while other things go on, and return what it prints."""
        env = {
            "COLUMNS": "200",
            "UNDERPASS_URL": str(self._api.client.make_url("")).rstrip("/"),
            "UNDERPASS_TOKEN": self._api.tokens[caller],
        }

        def run() -> str:
            result = CliRunner().invoke(app, list(arguments), env=env, catch_exceptions=False)
            assert result.exit_code == status, result.output
            return result.output

        # The verb has an event loop of its own, while the service answers in this one.
        return await asyncio.to_thread(run)


@pytest.fixture
def shell(api: Api, monkeypatch: pytest.MonkeyPatch) -> Shell:
    # Signal handlers are the main thread's.
    monkeypatch.setattr("underpass_control.commands.console._SIGNALS", ())
    return Shell(api)


def test_every_verb_has_help_with_an_example() -> None:
    def verbs(command: Any, path: list[str]) -> Iterator[list[str]]:
        for name, sub in getattr(command, "commands", {}).items():
            yield from verbs(sub, [*path, name])
        if not hasattr(command, "commands"):
            yield path

    found = list(verbs(typer.main.get_command(app), []))
    assert len(found) > 15
    for path in found:
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).output
        assert f"Example: underpass-control {' '.join(path)}" in shown, path


def test_the_route_of_a_terminal_is_set_from_a_file_and_forgotten(
    api: Api, shell: Shell, tmp_path: Path
) -> None:
    file, path = tmp_path / "line.gpx", f"/v1/terminals/{FIRST}/route"
    points = '<rtept lon="7.5" lat="46.5"/><rtept lon="7.6" lat="46.5"/>'
    file.write_text(f"<gpx><rte>{points}</rte></gpx>")
    assert json.loads(shell("terminal", "route", str(FIRST), str(file), "--json")) == {"places": 2}
    assert api.get(path).json["coordinates"] == [[7.5, 46.5], [7.6, 46.5]]
    shell("terminal", "forget-route", str(FIRST))
    assert api.get(path).status == 404
    file.write_text("<gpx/>")
    assert "no line" in shell("terminal", "route", str(FIRST), str(file), status=1)


def test_brackets_and_colons_in_a_name_are_shown_as_they_are(shell: Shell) -> None:
    name = "van [red] [/b] :bus:"
    shell("terminal", "set", str(FIRST), "--name", name)
    assert name in shell("terminal", "list")
    assert name in shell("beam", "set", "ku-1", "--name", name)


def test_what_a_service_refuses_is_said_member_by_member(shell: Shell) -> None:
    said = shell("beam", "set", "ku-1", "--fair-share", "x", "--satellite", "a b", status=1)
    assert "/fair_share: must be 'symbols' or 'bits'" in said
    assert "/satellite: must have 1 to 32 of A-Z, a-z, 0-9, ., _ and -" in said
    assert "{" not in said


def test_a_rollout_is_made_shown_paused_resumed_and_aborted(shell: Shell, tmp_path: Path) -> None:
    change = tmp_path / "change.json"
    change.write_text('{"classes": [{"name": "bulk", "weight": 5}]}')
    made = shell(
        "rollout", "create", "heavier", "--settings", str(change), "--terminal", str(SECOND),
        "--terminal", str(FIRST), "--stages", "1", "--json",
    )  # fmt: skip
    assert json.loads(made)["stages"] == [1]
    number = str(json.loads(made)["id"])
    assert "heavier" in shell("rollout", "list")
    listed = json.loads(shell("rollout", "terminals", number, "--json"))
    assert [one["terminal"] for one in listed] == [SECOND, FIRST]
    for verb, state in (("pause", "paused"), ("resume", "running")):
        shell("rollout", verb, number)
        assert json.loads(shell("rollout", "show", number, "--json"))["state"] == state
    # The caller has to say whether to restore.
    shell("rollout", "abort", number, status=2)
    shell("rollout", "abort", number, "--keep")
    assert "aborted" in shell("rollout", "show", number)
    change.write_text("{")
    assert "cannot read" in shell(
        "rollout", "create", "x", "--settings", str(change), "--beam", "ku-1", status=1
    )


def test_settings_of_a_terminal_and_of_a_gateway_are_set_and_shown(
    shell: Shell, tmp_path: Path
) -> None:
    change = tmp_path / "change.json"
    change.write_text('{"classes": [{"name": "bulk", "weight": 5}]}')
    for option, node in (("--terminal", str(FIRST)), ("--gateway", "1")):
        shell("settings", "set", str(change), option, node)
        shown = json.loads(shell("settings", "show", option, node, "--json"))
        assert shown["classes"] == [{"name": "bulk", "weight": 5}]
        assert "waiting" in shell("settings", "show", option, node)
        change.write_text('{"classes": [{"name": "bulk", "weight": 7}]}')
        previewed = json.loads(shell("settings", "preview", str(change), option, node, "--json"))
        expected = {"key": "class.bulk.weight", "before": 5, "after": 7}
        assert previewed["changes"] == [expected]
        assert "class.bulk.weight" in shell("settings", "preview", str(change), option, node)
        change.write_text('{"classes": [{"name": "bulk", "weight": 5}]}')
    assert "name a --terminal" in shell("settings", "show", status=1)


def test_a_beam_is_made_changed_shown_and_deleted(shell: Shell) -> None:
    shell("beam", "set", "west", "--name", "West", "--forward-capacity", "8M", status=1)
    made = shell(
        "beam", "set", "west", "--name", "West", "--forward-capacity", "8M",
        "--return-capacity", "1.5M", "--json",
    )  # fmt: skip
    assert json.loads(made)["return_capacity_bps"] == 1_500_000
    shell("beam", "set", "west", "--one-way-delay-ms", "250")
    shown = json.loads(shell("beam", "show", "west", "--json"))
    assert (shown["name"], shown["one_way_delay_ms"]) == ("West", 250)
    listed = shell("beam", "list")
    assert "West" in listed
    assert "1.5" in listed
    shell("beam", "delete", "west")
    assert "no beam west" in shell("beam", "show", "west", status=1)


def test_a_terminals_members_are_set_one_by_one_and_taken_away(shell: Shell) -> None:
    shell("terminal", "set", "20", "--beam", "ku-1", "--name", "bus", "--forward-maximum", "4M")
    shell("terminal", "set", "20", "--weight", "3")
    shown = json.loads(shell("terminal", "show", "20", "--json"))
    assert (shown["weight"], shown["forward_maximum_bps"], shown["name"]) == (3, 4_000_000, "bus")
    cleared = shell("terminal", "set", "20", "--clear", "forward_maximum_bps", "--json")
    assert "forward_maximum_bps" not in json.loads(cleared)
    assert "no member nonsense" in shell("terminal", "set", "20", "--clear", "nonsense", status=1)
    nodes = [one["node"] for one in json.loads(shell("terminal", "list", "--json"))]
    assert nodes == [FIRST, SECOND, 20]
    shell("terminal", "delete", "20")
    assert shell("terminal", "list", "--beam", "none") != ""


def test_positions_are_shown_the_newest_first(shell: Shell, api: Api) -> None:
    batch = [position(now_ms() - 1000 * n, terminal=FIRST) for n in range(1500)]
    assert api.call("POST", "/v1/positions", {"positions": batch}).status == 202
    newest = json.loads(shell("position", "show", str(FIRST), "--json"))
    track = json.loads(shell("position", "list", str(FIRST), "--most", "1200", "--json"))
    assert len(track) == 1200
    assert track[0] == newest
    assert newest["time"][:16] in shell("position", "list", str(FIRST), "--most", "2")


def test_the_plans_of_a_beam_are_shown_by_version_time_and_terminal(
    shell: Shell, tmp_path: Path
) -> None:
    def planned() -> set[int]:
        verb = ("plan", "list", "ku-1", "return", "--most", "1", "--json")
        if not json.loads(shell(*verb)):
            return set()
        shown = json.loads(shell("plan", "show", "ku-1", "return", "--json"))
        return {one for line in shown["lines"] for one in line["terminals"]}

    until = time.monotonic() + 60
    while planned() != {FIRST, SECOND}:
        assert time.monotonic() < until
        time.sleep(0.05)
    newest = json.loads(shell("plan", "list", "ku-1", "return", "--json"))[0]
    version = ("--version", str(newest["plan"]))
    own = ("--terminal", str(FIRST), "--json")
    (line,) = json.loads(shell("plan", "show", "ku-1", "return", *version, *own))["lines"]
    assert line["segments"][0]["fair_bits"] > 0
    table = shell("plan", "show", "ku-1", "return", *version)
    assert str(newest["plan"]) in table
    assert "fair" in table
    at = ("--at", newest["start"][:19])
    assert "not both" in shell("plan", "show", "ku-1", "return", *version, *at, status=1)
    assert "no forward plan" in shell(
        "plan", "show", "ku-1", "forward", "--at", "2020-01-01T00:00:00", status=1
    )
    assert json.loads(shell("plan", "holder", "ku-1", "--json"))["fence"] >= 1
    shell("plan", "acknowledged", "ku-1", "return", str(newest["plan"]))
    question = tmp_path / "question.json"
    question.write_text('{"link": "return"}')
    answer = json.loads(shell("plan", "what-if", "ku-1", str(question), "--json"))
    assert {one["terminal"] for one in answer["totals"]} == {FIRST, SECOND}


def test_nodes_are_listed(shell: Shell, api: Api) -> None:
    assert json.loads(shell("node", "list", "--json")) == []
    node = {"version": "1.2.3", "certificate_end_ms": 1_803_006_000_000}
    taken(api, entry(status(node=node)))
    (shown,) = json.loads(shell("node", "list", "--json"))
    assert (shown["node"], shown["version"]) == (FIRST, "1.2.3")
    assert shown["certificate_end"] in shell("node", "list")


def test_links_and_blockages_are_listed(shell: Shell) -> None:
    assert json.loads(shell("link", "list", "--beam", "ku-1", "--json")) == []
    assert json.loads(shell("link", "show", str(FIRST), "--json")) == []
    assert json.loads(shell("blockage", "list", "--state", "observed,passed", "--json")) == []
    assert "states are" in shell("blockage", "list", "--state", "grey", status=1)
    soon = moment_of(now_ms() + 60_000).strftime("%Y-%m-%dT%H:%M:%S")
    assert "announced" in shell("blockage", "announce", str(FIRST), soon, "35")


def test_the_streams_of_a_terminal_are_listed_as_its_gateway_says(
    shell: Shell, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a verb takes seconds to begin.
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 20.0)

    def answer(question: dict[str, Any]) -> dict[str, object]:
        listed = [stream(4), stream(2, paths=[])]
        return {"open": 5, "streams": listed[: question["limit"]]}

    async def told(*options: str) -> str:
        verb = shell.running("stream", "list", str(FIRST), *options)
        return await answered(api, verb, answer)

    async def run() -> None:
        await serve(api, HUB, FIRST)
        table = await told()
        for shown in ("example.org:443", "bulk", "terminal-11", "2 of 5 open", f"gateway {HUB}"):
            assert shown in table
        found = json.loads(await told("--most", "1", "--json"))
        assert (found["open"], found["streams"]) == (5, [stream(4)])

    api.run(run())
    shell("stream", "list", str(FIRST), "--most", "201", status=2)
    assert "no terminal 99" in shell("stream", "list", "99", status=1)


def test_a_map_is_imported_by_the_running_service(shell: Shell, api: Api, tmp_path: Path) -> None:
    path = tmp_path / "map.geojson"
    path.write_text(json.dumps(to_geojson(MAP.obstructions.values())))
    url = str(api.client.make_url("")).rstrip("/")
    for _ in range(2):
        told = shell("obstruction", "import", str(path), "--url", url, "--json")
        assert json.loads(told) == {"imported": 1, "removed": 0}
    (found,) = json.loads(shell("obstruction", "list", "--json"))
    assert found["id"] in MAP.obstructions
    assert shell("obstruction", "list", "--bbox", "100,10,101,11", "--json").strip() == "[]"
    refused = shell("obstruction", "import", str(path), "--url", url, caller="viewer", status=1)
    assert "role operator" in refused


def test_a_refusal_is_told_in_a_line(shell: Shell) -> None:
    told = shell("beam", "set", "ku-1", "--name", "mine", status=1, caller="viewer")
    assert told == "underpass-control: this needs the role operator\n"
    assert "does not answer" in shell("beam", "list", "--url", "http://127.0.0.1:1", status=1)


@pytest.mark.parametrize("rate", ["8X", "-5", "1e400M", ""])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    result = CliRunner().invoke(app, ["beam", "set", "x", "--forward-capacity", rate])
    assert result.exit_code == 2
