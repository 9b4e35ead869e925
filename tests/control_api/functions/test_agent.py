"""The agent of a site, with an engine that records its calls."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from underpass_control.client import Client, LostError, RefusedError
from underpass_control.commands import functions as verbs
from underpass_control.functions import agent as agent_module
from underpass_control.functions.agent import HEAL_AFTER_S, Agent
from underpass_control.functions.descriptors import installed
from underpass_control.functions.engine import ContainerState, EngineError
from underpass_control.functions.sites import SiteError, SiteFile, read

from tests.control_api.functions.examples import NORTH, changed, ground, vehicle

SITE = """
cpus = 8
memory_mb = 8192
tenant_cpus = 7
certificates = "{certificates}"
[[attachment]]
name = "lan"
network = "net-lan"
tenants = ["north", "south"]
[[attachment]]
name = "modem"
network = "net-modem"
tenants = ["north", "south"]
"""


class Recorder:
    """An engine that runs slices in memory."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.projects: dict[str, dict[str, str]] = {}
        self.refuses: str | None = None
        # The slices for which it takes long.
        self.slow: dict[str, asyncio.Event] = {}

    async def up(self, project: str, folder: Path) -> None:
        self.done.append(("up", project))
        if project in self.slow:
            await self.slow[project].wait()
        if self.refuses == project:
            raise EngineError("no such image")
        document = json.loads((folder / "compose.json").read_text())
        for name, service in document["services"].items():
            for volume in service["volumes"]:
                source = volume.partition(":")[0]
                assert not source.startswith("./") or (folder / source).is_dir()
            self.projects.setdefault(project, {}).setdefault(name, "healthy")

    async def down(self, project: str, folder: Path) -> None:
        assert (folder / "compose.json").exists()
        self.done.append(("down", project))
        self.projects.pop(project, None)

    async def restart(self, project: str, _folder: Path, container: str) -> None:
        self.done.append(("restart", container))
        self.projects[project][container] = "starting"

    async def states(self, project: str) -> list[ContainerState]:
        found = self.projects.get(project, {})
        return [ContainerState(name, "running", health) for name, health in found.items()]


class Place:
    """A site with an agent."""

    def __init__(self, folder: Path, site: str = SITE) -> None:
        self.folder = folder / "slices"
        self.certificates = folder / "pki"
        for tenant in (NORTH, "south"):
            for node in (5, 10):
                of_node = self.certificates / tenant / "nodes" / str(node)
                of_node.mkdir(parents=True)
                (of_node / "node.crt").write_text("x")
        path = folder / "site.toml"
        path.write_text(site.format(certificates=self.certificates))
        self.site: SiteFile = read(path)
        self.engine = Recorder()
        self.now_s = 0.0
        self.agent = self._agent()

    def _agent(self) -> Agent:
        return Agent(self.engine, installed(), self.site, self.folder, lambda: self.now_s)

    def restarted(self) -> None:
        """Replace the agent by another one with the same folder."""
        self.agent = self._agent()

    def bring(self, *slices: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Give the agent these slices; return its reports by name."""
        done = asyncio.run(self.agent.bring([dict(one) for one in slices]))
        self.engine.done, self.last = [], self.engine.done
        return {one["name"]: one for one in done}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def told(name: str = "one", body: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """Return a slice as the service sends it."""
    slice_ = {"name": name, "tenant": NORTH, "number": 1, "revision": 1, "ending": False}
    return {**slice_, "body": vehicle() if body is None else body, **members}


def test_a_slice_is_brought_up_once_and_again_when_something_has_changed(place: Place) -> None:
    reports = place.bring(told())
    assert reports["one"]["state"] == "running"
    assert {c["name"] for c in reports["one"]["containers"]} == {"proxy.1", "shaper.1"}
    assert place.last == [("up", "underpass-slice-one")]
    place.bring(told())
    place.restarted()
    place.bring(told(revision=2))
    assert place.last == []
    place.bring(told(body=changed(vehicle(), generation=2)))
    assert place.last == [("up", "underpass-slice-one")]
    # A container that somebody has removed.
    del place.engine.projects["underpass-slice-one"]["proxy.1"]
    place.bring(told(body=changed(vehicle(), generation=2)))
    assert place.last == [("up", "underpass-slice-one")]


def test_a_slice_is_ended_and_nothing_of_it_is_left(place: Place) -> None:
    place.bring(told())
    assert place.bring(told(ending=True))["one"]["state"] == "ended"
    assert place.last == [("down", "underpass-slice-one")]
    assert not (place.folder / "one").exists()
    # It is reported again, since the report may have been lost.
    assert place.bring(told(ending=True))["one"]["state"] == "ended"
    assert place.last == []


def test_one_that_cannot_run_stops_no_other_and_is_tried_again(place: Place) -> None:
    place.engine.refuses = "underpass-slice-bad"
    reports = place.bring(told("bad"), told("good", number=2))
    assert (reports["bad"]["state"], reports["bad"]["detail"]) == ("failed", "no such image")
    assert reports["good"]["state"] == "running"
    place.engine.refuses = None
    assert place.bring(told("bad"), told("good", number=2))["bad"]["state"] == "running"
    assert place.last == [("up", "underpass-slice-bad")]


def test_one_that_takes_long_holds_up_no_other_and_is_told_of_once_it_is_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_PATIENCE_S", 0.05)
    asyncio.run(_slow_beside_good(place))


async def _slow_beside_good(place: Place) -> None:
    async def bring() -> dict[str, str]:
        reports = await place.agent.bring([told("slow"), told("good", number=2)])
        return {one["name"]: one["state"] for one in reports}

    gate = place.engine.slow["underpass-slice-slow"] = asyncio.Event()
    assert await bring() == {"good": "running"}
    place.engine.projects["underpass-slice-good"]["shaper.1"] = "unhealthy"
    assert await bring() == {"good": "running"}
    place.now_s = HEAL_AFTER_S
    assert await bring() == {"good": "running"}
    assert ("restart", "shaper.1") in place.engine.done
    # It was begun once.
    assert place.engine.done.count(("up", "underpass-slice-slow")) == 1
    gate.set()
    assert await bring() == {"slow": "running", "good": "running"}


def answered(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> list[list[Any]]:
    """Run an agent with these answers of a service; return the slices that it handled each time."""
    said = iter(answers)
    at: list[list[Any]] = []

    class Looked:
        async def bring(self, given: list[Any]) -> list[Any]:
            at.append(given)
            return []

    async def ask(*_: object, **__: object) -> Any:
        answer = next(said, EOFError())
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Client, "ask", ask)
    monkeypatch.setattr(verbs, "_REFUSED_S", 0.0)
    with pytest.raises(EOFError):
        asyncio.run(verbs._run(cast(Agent, Looked()), "/", "http://127.0.0.1:1", None, 0.0))
    return at


@pytest.mark.parametrize("again_s", [0.0, 86_400.0])
def test_slices_are_looked_after_while_the_service_is_away_be_it_for_long(
    monkeypatch: pytest.MonkeyPatch, again_s: float
) -> None:
    away = LostError("away", again_s)
    assert answered(monkeypatch, {"slices": ["one"]}, None, away, away) == [["one"]] * 3


def test_slices_are_looked_after_while_the_service_refuses_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = {"slices": ["one"]}, {"slices": ["two"]}
    revoked = RefusedError(401, "the token is unknown")
    with capture_logs() as logs:
        at = answered(monkeypatch, one, None, revoked, revoked, two, None)
    assert at == [["one"]] * 3 + [["two"]]
    # It is logged once, not with each attempt.
    assert [(entry["log_level"], entry.get("error")) for entry in logs] == [
        ("warning", "the token is unknown"),
        ("info", None),
    ]


def test_reports_that_are_refused_end_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"slices": ["one"]}
    at = answered(monkeypatch, one, RefusedError(422, "no such state"), one, None)
    assert at == [["one"]] * 3


@pytest.mark.parametrize("answer", [None, [], "", {}, {"slices": None}, {"slices": {}}])
def test_an_answer_of_something_else_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    assert answered(monkeypatch, {"slices": ["one"]}, None, answer) == [["one"]] * 2


@pytest.mark.parametrize("first", [RefusedError(401, "the token is unknown"), {"beams": []}])
def test_an_agent_that_is_refused_from_the_start_ends_and_says_why(
    monkeypatch: pytest.MonkeyPatch, first: Any
) -> None:
    with pytest.raises(RefusedError, match=r"the token is unknown|no control service"):
        answered(monkeypatch, first)


def test_a_service_that_is_away_at_the_start_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = LostError("away", 0.0)
    assert answered(monkeypatch, away, {"slices": ["one"]}, None) == [[], ["one"]]


def test_what_is_unhealthy_for_long_is_started_again(place: Place) -> None:
    place.bring(told())
    health = place.engine.projects["underpass-slice-one"]
    health["shaper.1"] = "unhealthy"
    place.bring(told())
    place.now_s = HEAL_AFTER_S - 1
    place.bring(told())
    assert place.last == []
    place.now_s = HEAL_AFTER_S
    place.bring(told())
    assert place.last == [("restart", "shaper.1")]
    # It starts again, and has the full time again.
    health["shaper.1"] = "unhealthy"
    place.bring(told())
    assert place.last == []


@pytest.mark.parametrize(
    "members",
    [
        {"name": "../../etc"},
        {"name": "a\n"},
        {"number": -1},
        {"number": 256},
        {"tenant": "../south"},
        {"body": {**vehicle(), "privileged": True}},
        {"body": changed(vehicle(), image="evil")},
    ],
)
def test_a_service_in_wrong_hands_names_nothing_on_the_host(
    place: Place, members: dict[str, Any]
) -> None:
    assert place.bring(told() | members) == {}
    assert place.last == []
    assert not place.folder.exists()


def test_what_is_checked_by_the_service_is_checked_here_too(place: Place) -> None:
    body = changed(vehicle(), settings={"client_networks": ["10.0.0.0/8\nx"]})
    assert place.bring(told(body=body))["one"]["state"] == "failed"
    body = changed(vehicle(), function="shell")
    assert "nothing describes" in place.bring(told(body=body))["one"]["detail"]
    assert "no attachment" in place.bring(told(tenant="west"))["one"]["detail"]
    assert "no attachment" in place.bring(told(body=ground()))["one"]["detail"]
    assert place.last == []


def test_a_node_has_the_certificate_of_its_tenant_or_does_not_run(place: Place) -> None:
    body = changed(vehicle(), settings={"node": 11})
    detail = place.bring(told(body=body))["one"]["detail"]
    assert detail == "the site has no certificate of node 11 for north"


def test_a_tenant_has_room_for_its_own_and_a_site_for_all(place: Place) -> None:
    """A vehicle's slice may use two CPUs; the site has eight, and seven for one tenant."""
    north = [told(f"n{n}", number=n) for n in range(4)]
    reports = place.bring(*north)
    assert [reports[f"n{n}"]["state"] for n in range(4)] == ["running"] * 3 + ["failed"]
    assert "the tenant north has no room" in reports["n3"]["detail"]
    south = [told(f"a{n}", number=8 + n, tenant="south") for n in range(2)]
    reports = place.bring(*south, *north)
    # Running slices keep their resources, whatever the names of others.
    assert [reports[name]["state"] for name in ("n0", "n1", "n2")] == ["running"] * 3
    assert [reports[name]["state"] for name in ("a0", "a1")] == ["running", "failed"]
    assert "the site has no room" in reports["a1"]["detail"]


@pytest.fixture
def narrow(tmp_path: Path) -> Place:
    """A site that lets each tenant send 3 Mbit/s over the modem."""
    return Place(tmp_path, SITE + "tenant_send_bps = 3000000\n")


def sending(rate_bps: int) -> dict[str, Any]:
    """Return a vehicle's slice whose shaper sends at a rate."""
    body = copy.deepcopy(vehicle())
    body["functions"][1]["settings"]["send_rate_bps"] = rate_bps
    return body


def test_a_tenant_sends_no_more_over_an_attachment_than_the_site_lets_it(narrow: Place) -> None:
    greedy = narrow.bring(told(body=sending(8_000_000)))["one"]
    assert greedy["detail"] == (
        "the tenant north has no room: 8000000 bit/s sent over modem are asked for, "
        "and 3000000 left"
    )
    both = told("one"), told("two", number=2, body=sending(1_000_001))
    reports = narrow.bring(*both)
    assert [reports[name]["state"] for name in ("one", "two")] == ["running", "failed"]
    # Another tenant has a maximum of its own.
    south = told("three", number=3, tenant="south", body=sending(3_000_000))
    assert narrow.bring(*both, south)["three"]["state"] == "running"


def test_a_change_that_is_refused_frees_nothing_of_what_still_runs(narrow: Place) -> None:
    narrow.bring(told(body=sending(3_000_000)))
    narrow.restarted()
    greedy = told(body=sending(8_000_000), revision=2)
    reports = narrow.bring(greedy, told("two", number=2, body=sending(8_000)))
    assert [reports[name]["state"] for name in ("one", "two")] == ["failed", "failed"]
    assert narrow.last == []
    # A smaller one frees the rest, once it is applied.
    small = told(body=sending(1_000_000), revision=3)
    two = told("two", number=2, body=sending(2_000_000))
    reports = narrow.bring(small, two)
    assert [reports[name]["state"] for name in ("one", "two")] == ["running", "failed"]
    reports = narrow.bring(small, two)
    assert [reports[name]["state"] for name in ("one", "two")] == ["running", "running"]


def test_a_smaller_change_that_the_engine_does_not_make_frees_nothing(narrow: Place) -> None:
    narrow.bring(told(body=sending(3_000_000)))
    narrow.engine.refuses = "underpass-slice-one"
    small = told(body=sending(1_000_000), revision=2)
    two = told("two", number=2, body=sending(2_000_000))
    assert narrow.bring(small)["one"]["state"] == "failed"
    narrow.restarted()
    reports = narrow.bring(small, two)
    assert [reports[name]["state"] for name in ("one", "two")] == ["failed", "failed"]
    narrow.engine.refuses = None
    narrow.bring(small)
    assert narrow.bring(small, two)["two"]["state"] == "running"


def test_a_change_without_a_certificate_frees_and_takes_nothing(narrow: Place) -> None:
    narrow.bring(told(body=sending(3_000_000)))
    # A smaller one for a node whose certificate the site does not have.
    small = changed(sending(1_000_000), settings={"node": 11})
    two = told("two", number=2, body=sending(2_000_000))
    for _ in range(2):
        reports = narrow.bring(told(body=small, revision=2), two)
        assert [reports[name]["state"] for name in ("one", "two")] == ["failed", "failed"]
    # A new slice without a certificate takes no room from others.
    narrow.bring(told(ending=True))
    absent = told("three", number=3, body=changed(sending(3_000_000), settings={"node": 11}))
    reports = narrow.bring(absent, told("four", number=4, body=sending(3_000_000)))
    assert [reports[name]["state"] for name in ("three", "four")] == ["failed", "running"]


def test_a_running_slice_keeps_what_it_has_when_a_maximum_is_lowered(narrow: Place) -> None:
    narrow.bring(told(body=sending(3_000_000)))
    path = narrow.folder.parent / "site.toml"
    path.write_text(path.read_text().replace("3000000", "1000000"))
    narrow.site = read(path)
    narrow.restarted()
    assert narrow.bring(told(body=sending(3_000_000)))["one"]["state"] == "running"
    more = told(body=sending(3_000_001), revision=2)
    assert narrow.bring(more)["one"]["state"] == "failed"


def test_what_keeps_to_no_rate_is_not_on_an_attachment_with_a_maximum(narrow: Place) -> None:
    body = copy.deepcopy(vehicle())
    body["networks"][0]["attachment"] = "modem"
    detail = narrow.bring(told(body=body))["one"]["detail"]
    assert detail == "proxy: a proxy keeps to no rate, and modem has a maximum"


def test_what_was_half_done_is_not_taken_for_what_was_there_before(place: Place) -> None:
    place.bring(told())
    place.engine.refuses = "underpass-slice-one"
    assert place.bring(told(body=changed(vehicle(), generation=2)))["one"]["state"] == "failed"
    place.engine.refuses = None
    place.bring(told())
    assert place.last == [("up", "underpass-slice-one")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("net-lan", "host"),
        ("net-lan", "0-underpass.south.inner"),
        ('name = "lan"', 'name = "modem"'),
        ("cpus = 8", "cpus = 0"),
        ("cpus = 8", 'cpus = 8\npool = "10.0.0.0/25"'),
        ("cpus = 8", "cpus = 8\nsockets = 1"),
        ("cpus = 8", "cpus ="),
        ('network = "net-modem"', 'network = "net-modem"\ntenant_send_bps = 0'),
    ],
)
def test_a_sites_file_that_is_not_as_it_should_be_is_refused(
    tmp_path: Path, before: str, after: str
) -> None:
    path = tmp_path / "site.toml"
    path.write_text(SITE.format(certificates="/pki"))
    read(path)
    path.write_text(SITE.format(certificates="/pki").replace(before, after, 1))
    with pytest.raises(SiteError, match=r"site\.toml"):
        read(path)
