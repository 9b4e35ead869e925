"""Alerts over REST: they fire, are sent to webhooks, acknowledged and resolved, once each."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
import time
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from sqlalchemy import event, func, insert, select, update
from underpass_control.alerts import evidence
from underpass_control.alerts.mail import mail_server_of
from underpass_control.alerts.messages import News
from underpass_control.alerts.watch import Watch
from underpass_control.metrics import Metrics
from underpass_control.pruning import prune
from underpass_control.roles import Role
from underpass_control.settings import Settings
from underpass_control.storage import alerts
from underpass_control.storage.database import DatabaseLostError
from underpass_control.storage.models import (
    Alert,
    AlertMessage,
    AlertPending,
    AlertTarget,
    LinkState,
    Terminal,
)

from tests.control_api.service.api import FIRST, Api, now_ms, served
from tests.control_api.service.test_interventions import add as intervene
from tests.control_api.service.test_reports import entry, status, taken
from tests.control_api.service.two_tenants import NORTH, settle

LOOPBACK = (ip_network("127.0.0.0/8"),)


class Hook:
    """A webhook's server, with the answers that a test sets."""

    def __init__(self, api: Api) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        application = web.Application()
        application.router.add_post("/hook", self._take)
        application.router.add_post("/moved", self._move)
        application.router.add_post("/slow", self._wait)
        self.release = asyncio.Event()
        self.asked_slow = 0
        self.server = TestServer(application)
        self._api = api
        api.run(self.server.start_server())

    async def _take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        return web.Response(status=self.answers.pop(0) if self.answers else 204)

    async def _move(self, _request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/hook")

    async def _wait(self, _request: web.Request) -> web.Response:
        self.asked_slow += 1
        await self.release.wait()
        return web.Response(status=204)

    def url(self, path: str = "/hook") -> str:
        return str(self.server.make_url(path))

    def close(self) -> None:
        self._api.run(self.server.close())


def rule(api: Api, kind: str = "unheard", limit_s: float | None = 60, **more: object) -> Any:
    # Each check counts, unless a test is about how long a condition has to hold.
    at_once = {"for_s": 0, "keep_firing_for_s": 0}
    body = {"name": kind, "kind": kind, "limit_s": limit_s, **at_once, **more}
    made = api.call("POST", "/v1/alert-rules", body)
    assert made.status == 201, made.text
    return made.json


def target(api: Api, url: str) -> Any:
    made = api.call("POST", "/v1/alert-targets", {"name": "chat", "url": url})
    assert made.status == 201, made.text
    assert made.headers["Cache-Control"] == "no-store"
    return made.json


def watch(api: Api) -> Watch:
    """Return what checks the rules, as if terminals had been heard all the time."""
    return Watch(api.database, api.changes, Metrics(), hears_since_s=-math.inf)


def looked(api: Api) -> list[dict[str, Any]]:
    """Check the rules; return the alerts that fire."""
    api.run(watch(api).look())
    found: list[dict[str, Any]] = api.get("/v1/alerts?firing=true").json["alerts"]
    return found


def silent_since(api: Api, ms: int) -> None:
    """Make the first terminal's last report come at a time."""

    async def put() -> None:
        async with api.database.transaction() as connection:
            await connection.execute(update(LinkState).values(received_ms=ms))

    taken(api, entry(status()))
    api.run(put())


def make_due(api: Api) -> None:
    async def run() -> None:
        async with api.database.transaction() as connection:
            await connection.execute(update(AlertMessage).values(next_ms=0))

    api.run(run())


def waiting(api: Api) -> int:
    async def run() -> int:
        async with api.database.reading() as connection:
            count = await connection.execute(select(func.count(AlertMessage.id)))
            return int(count.scalar_one())

    return api.run(run())


@pytest.fixture
def quiet(url: str) -> Any:
    """The service, which checks when the test says so, and may send to the loopback."""
    settings = Settings(look_for_alerts_every_s=3_600, webhook_networks=LOOPBACK)
    with served(url, settings) as running:
        running.add_beam()
        yield running


def test_an_alert_fires_once_and_is_resolved_once_whoever_looks(quiet: Api) -> None:
    api = quiet
    rule(api)
    silent_since(api, now_ms())
    assert looked(api) == []
    silent_since(api, now_ms() - 120_000)
    api.run(_together(api))
    (one,) = looked(api)
    assert (one["terminal"], one["kind"], one["rule"]) == (FIRST, "unheard", "unheard")
    assert "60 s" in one["text"]
    silent_since(api, now_ms())
    assert looked(api) == []
    (over,) = api.get("/v1/alerts").json["alerts"]
    assert over["id"] == one["id"]
    assert over["resolved"] >= over["since"]
    assert api.get("/v1/alerts?firing=false").json["alerts"] == [over]


async def _together(api: Api) -> None:
    await asyncio.gather(*(watch(api).look() for _ in range(4)))


def test_many_alerts_fire_and_are_resolved_in_portions(quiet: Api) -> None:
    terminals, rules = 400, 3
    for number in range(rules):
        rule(quiet, name=f"rule {number}")

    async def put() -> None:
        values = [{"node": 1_000 + n, "beam_id": "ku-1", "name": "x"} for n in range(terminals)]
        async with quiet.database.transaction() as connection:
            await connection.execute(insert(Terminal), values)
            heard = (await connection.execute(select(LinkState.__table__))).first()
            assert heard is not None
            made = [
                {**heard._asdict(), "terminal": one["node"], "node": one["node"]} for one in values
            ]
            await connection.execute(insert(LinkState), made)

    def changed() -> list[int]:
        """Check the rules; return how many parameters each statement that changed alerts had."""
        found: list[int] = []

        def executed(_: object, __: object, text: str, parameters: Any, *___: object) -> None:
            if text.startswith(("INSERT INTO alert ", "UPDATE alert ")):
                found.append(len(parameters))

        engine = quiet.database.engine.sync_engine
        event.listen(engine, "after_cursor_execute", executed)
        quiet.run(watch(quiet).look())
        event.remove(engine, "after_cursor_execute", executed)
        return found

    taken(quiet, entry(status()))
    quiet.run(put())
    silent_since(quiet, 0)
    # One statement for all would have more parameters than a database accepts, and would lock
    # SQLite for as long as it takes.
    assert len(fired := changed()) == 3
    assert max(fired) < 5_000
    assert looked(quiet)
    silent_since(quiet, now_ms())
    assert len(ended := changed()) == 3
    assert max(ended) < 1_000
    assert looked(quiet) == []


def test_a_rule_that_is_deleted_has_its_alerts_resolved(quiet: Api) -> None:
    made = rule(quiet)
    silent_since(quiet, 0)
    assert len(looked(quiet)) == 1
    assert quiet.call("DELETE", f"/v1/alert-rules/{made['id']}").status == 204
    assert looked(quiet) == []
    assert quiet.call("DELETE", f"/v1/alert-rules/{made['id']}").status == 404


def test_what_fires_for_a_terminal_that_is_deleted_is_told_as_resolved(quiet: Api) -> None:
    hook = Hook(quiet)
    target(quiet, hook.url())
    rule(quiet)
    silent_since(quiet, 0)
    (one,) = looked(quiet)
    assert quiet.call("DELETE", f"/v1/terminals/{FIRST}").status == 204
    assert quiet.get("/v1/alerts").json["alerts"] == []
    until(quiet, lambda: len(hook.got) == 2)
    told = [json.loads(body) for _, body in hook.got]
    assert {(each["event"], each["alert"]["id"]) for each in told} == {
        ("firing", one["id"]),
        ("resolved", one["id"]),
    }
    hook.close()


def test_maintenance_is_quiet(quiet: Api) -> None:
    rule(quiet)
    silent_since(quiet, 0)
    intervene(quiet, "maintenance", terminal=FIRST)
    assert looked(quiet) == []


def test_what_comes_and_goes_is_told_once_by_however_many_processes(quiet: Api) -> None:
    rule(quiet, keep_firing_for_s=3_600)
    for _ in range(3):
        silent_since(quiet, 0)
        quiet.run(_together(quiet))
        silent_since(quiet, now_ms())
        quiet.run(_together(quiet))
    (one,) = looked(quiet)
    assert quiet.get("/v1/alerts").json["alerts"] == [one]
    earlier(quiet, Alert.gone_ms, 3_600_000)
    quiet.run(_together(quiet))
    (over,) = quiet.get("/v1/alerts").json["alerts"]
    assert (over["id"], "resolved" in over) == (one["id"], True)


def test_what_has_not_held_for_its_time_does_not_fire_and_restarts_do_not_begin_anew(
    quiet: Api,
) -> None:
    rule(quiet, for_s=600)
    silent_since(quiet, 0)
    assert looked(quiet) == []
    # The condition is absent for one check, so its time begins anew.
    earlier(quiet, AlertPending.since_ms, 700_000)
    silent_since(quiet, now_ms())
    assert looked(quiet) == []
    silent_since(quiet, 0)
    quiet.run(_together(quiet))
    assert looked(quiet) == []
    earlier(quiet, AlertPending.since_ms, 600_000)
    # Checks keep nothing in memory.
    assert len(looked(quiet)) == 1
    assert quiet.run(_pending(quiet)) == {}


def test_what_could_not_fire_has_held_no_less_long(
    quiet: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        raise DatabaseLostError("it has given way to another process")

    rule(quiet, for_s=600)
    silent_since(quiet, 0)
    assert looked(quiet) == []
    earlier(quiet, AlertPending.since_ms, 600_000)
    with monkeypatch.context() as patched:
        patched.setattr(alerts, "fire", lost)
        with pytest.raises(DatabaseLostError):
            looked(quiet)
    assert len(looked(quiet)) == 1
    assert quiet.run(_pending(quiet)) == {}


async def _pending(api: Api) -> dict[Any, int]:
    async with api.database.reading() as connection:
        return await alerts.pending(connection)


def earlier(api: Api, column: Any, by_ms: int) -> None:
    """Move the beginning of the stored state to an earlier time."""

    async def run() -> None:
        async with api.database.transaction() as connection:
            changed = update(column.class_).values({column.key: column - by_ms})
            assert (await connection.execute(changed)).rowcount == 1

    api.run(run())


def test_certificates_that_end_and_other_versions_fire_until_they_are_right(quiet: Api) -> None:
    def said(version: str, end_ms: int) -> None:
        node = {"version": version, "certificate_end_ms": end_ms}
        taken(quiet, entry(status(node=node)))

    rule(quiet, "certificate", 86_400)
    rule(quiet, "version", None, version="2.0.0")
    said("1.9.0", now_ms() + 80_000_000)
    found = {one["kind"]: one["text"] for one in looked(quiet)}
    assert set(found) == {"certificate", "version"}
    assert found["version"] == f"terminal {FIRST} runs version 1.9.0, not 2.0.0"
    said("2.0.0", now_ms() + 90_000_000)
    assert looked(quiet) == []


def test_a_rule_has_what_its_kind_needs_and_nothing_else(quiet: Api) -> None:
    for wrong in (
        {"kind": "certificate"},
        {"kind": "version"},
        {"kind": "version", "version": "1", "limit_s": 5},
        {"kind": "unheard", "limit_s": 5, "version": "1"},
        {"kind": "version", "version": "1 2"},
        {"kind": "version", "version": "1" * 65},
        {"kind": "unheard", "limit_s": 5, "for_s": -1},
        {"kind": "unheard", "limit_s": 5, "keep_firing_for_s": 1e9},
    ):
        refused = quiet.call("POST", "/v1/alert-rules", {"name": "x", **wrong})
        assert refused.status == 422, wrong
    body = {"name": "x", "kind": "version", "version": "1.0"}
    made = quiet.call("POST", "/v1/alert-rules", body).json
    assert (made["for_s"], made["keep_firing_for_s"]) == (0, 60)
    assert "limit_s" not in made
    assert quiet.get("/v1/alert-rules").json["rules"] == [made]


def test_who_acknowledges_second_is_told_who_was_first(quiet: Api) -> None:
    api = quiet
    rule(api)
    silent_since(api, 0)
    (one,) = looked(api)
    path = f"/v1/alerts/{one['id']}/acknowledgement"
    first = api.call("POST", path)
    assert first.status == 200, first.text
    assert first.json["acknowledged_by"] == "the tests' operator"
    second = api.call("POST", path, caller="administrator")
    assert second.status == 409
    assert "the tests' operator has acknowledged it" in second.problem
    assert api.call("POST", "/v1/alerts/987654/acknowledgement").status == 404
    assert api.call("POST", path, caller="viewer").status == 403


def test_a_webhook_is_told_signed_and_again_until_it_has_taken_it(quiet: Api) -> None:
    api = quiet
    hook = Hook(api)
    hook.answers = [503, 302]
    made = target(api, hook.url())
    rule(api)
    silent_since(api, 0)
    looked(api)
    until(api, lambda: failure(api) == "it answers 503")
    make_due(api)
    until(api, lambda: failure(api) == "it answers 302" or waiting(api) == 0)
    make_due(api)
    until(api, lambda: waiting(api) == 0)
    assert failure(api) is None
    assert len(hook.got) == 3
    numbers = {headers["Underpass-Message"] for headers, _ in hook.got}
    assert len(numbers) == 1
    headers, body = hook.got[-1]
    seconds, digest = (part.split("=")[1] for part in headers["Underpass-Signature"].split(","))
    signed = hmac.new(made["secret"].encode(), seconds.encode() + b"." + body, hashlib.sha256)
    assert signed.hexdigest() == digest
    told = json.loads(body)
    assert (told["event"], told["alert"]["terminal"]) == ("firing", FIRST)
    silent_since(api, now_ms())
    looked(api)
    until(api, lambda: len(hook.got) == 4)
    assert json.loads(hook.got[-1][1])["event"] == "resolved"
    hook.close()


def failure(api: Api) -> str | None:
    """Return the failure of the last message to the only target."""
    (shown,) = api.get("/v1/alert-targets").json["targets"]
    found: str | None = shown.get("last_failure")
    return found


def test_a_target_that_is_away_keeps_no_other_waiting(quiet: Api) -> None:
    hook = Hook(quiet)
    for n in range(5):
        rule(quiet, name=f"rule {n}")
    slow = target(quiet, hook.url("/slow"))
    target(quiet, hook.url())
    silent_since(quiet, 0)
    assert len(looked(quiet)) == 5
    until(quiet, lambda: len(hook.got) == 5)
    # The other has not answered the first message, so nothing more was sent to it.
    assert hook.asked_slow == 1
    hook.release.set()
    until(quiet, lambda: hook.asked_slow == 5)
    assert quiet.call("DELETE", f"/v1/alert-targets/{slow['id']}").status == 204
    hook.close()


def test_what_a_target_has_not_taken_puts_off_all_that_it_is_to_be_told(quiet: Api) -> None:
    hook = Hook(quiet)
    hook.answers = [503] * 10
    target(quiet, hook.url())
    for n in range(5):
        rule(quiet, name=f"rule {n}")
    silent_since(quiet, 0)
    looked(quiet)
    until(quiet, lambda: failure(quiet) == "it answers 503")

    async def due() -> tuple[set[int], int]:
        async with quiet.database.reading() as connection:
            target_ids = await alerts.due(connection, now_ms() + 1_000)
            return target_ids, (await connection.scalars(select(AlertTarget.failures))).one()

    assert quiet.run(due()) == (set(), 1)
    assert len(hook.got) == 1
    assert waiting(quiet) == 5
    hook.answers = []
    make_due(quiet)
    until(quiet, lambda: waiting(quiet) == 0)
    assert quiet.run(due()) == (set(), 0)
    hook.close()


def test_each_target_has_room_of_its_own(quiet: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MOST_WAITING", 3)
    news = [News("firing", {"id": number, "text": "x"}) for number in range(2)]

    async def tell() -> int:
        async with quiet.database.transaction() as connection:
            # In the meantime nothing is sent to it.
            return await alerts.tell(connection, news, now_ms() + 3_600_000)

    target(quiet, "https://one.example.com/")
    assert quiet.run(tell()) == 0
    assert quiet.run(tell()) == 1
    target(quiet, "https://two.example.com/")
    assert quiet.run(tell()) == 2
    assert waiting(quiet) == 3 + 2


def test_messages_that_nobody_has_taken_for_a_day_are_given_up(quiet: Api) -> None:
    target(quiet, "https://example.com/")
    silent_since(quiet, 0)
    rule(quiet)
    looked(quiet)
    assert quiet.run(prune(quiet.database, alerts.give_up, now_ms() - 86_400_000)) == 0
    assert quiet.run(prune(quiet.database, alerts.give_up, now_ms() + 1_000)) == 1
    assert waiting(quiet) == 0


def test_an_error_that_nobody_has_thought_of_ends_neither_looking_nor_sending(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, claim = evidence.read, alerts.claim
    broken = {"read": 2, "claim": 1}

    async def fail_first(name: str) -> None:
        if broken[name]:
            broken[name] -= 1
            raise KeyError(name)

    async def read_later(*given: Any) -> Any:
        await fail_first("read")
        return await read(*given)

    async def claim_later(*given: Any, **named: Any) -> Any:
        await fail_first("claim")
        return await claim(*given, **named)

    monkeypatch.setattr(evidence, "read", read_later)
    monkeypatch.setattr(alerts, "claim", claim_later)
    settings = Settings(look_for_alerts_every_s=0.1, webhook_networks=LOOPBACK)
    with served(url, settings) as api:
        api.add_beam()
        hook = Hook(api)
        target(api, hook.url())
        rule(api, limit_s=1)
        silent_since(api, 0)
        until(api, lambda: bool(hook.got))
        assert broken == {"read": 0, "claim": 0}
        hook.close()


def test_a_redirect_is_not_followed(quiet: Api) -> None:
    hook = Hook(quiet)
    target(quiet, hook.url("/moved"))
    rule(quiet)
    silent_since(quiet, 0)
    looked(quiet)
    until(quiet, lambda: failure(quiet) == "it answers 307")
    assert hook.got == []
    hook.close()


def test_the_service_itself_asks_nothing_within_its_own_network(url: str) -> None:
    with served(url, Settings(look_for_alerts_every_s=0.2)) as api:
        api.add_beam()
        hook = Hook(api)
        # A name is checked when a connection to it is made.
        target(api, hook.url().replace("127.0.0.1", "localhost"))
        rule(api, limit_s=1)
        silent_since(api, 0)
        until(api, lambda: "no public address" in (failure(api) or ""))
        assert hook.got == []
        hook.close()


def until(api: Api, happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 200
    while not happens():
        assert time.monotonic() < end
        api.run(asyncio.sleep(0.1))


def test_what_a_webhook_may_not_be_is_told(quiet: Api) -> None:
    for url, detail in (
        ("http://10.0.0.1:8470/", "--webhook-networks"),
        ("ftp://example.com/", "begins with https"),
        ("https://a:b@example.com/", "no user"),
    ):
        refused = quiet.call("POST", "/v1/alert-targets", {"name": "x", "url": url})
        assert refused.status == 422
        assert detail in refused.problem


def test_there_are_bounds(quiet: Api) -> None:
    for _ in range(20):
        target(quiet, "https://example.com/")
    full = quiet.call("POST", "/v1/alert-targets", {"name": "x", "url": "https://example.com/"})
    assert full.status == 409
    assert len(quiet.get("/v1/alert-targets").json["targets"]) == 20
    nowhere = {"name": "x", "kind": "debt", "limit_s": 1, "beam": "no"}
    assert quiet.call("POST", "/v1/alert-rules", nowhere).status == 409
    for limit_s in (0, -1, 1e12):
        refused = quiet.call("POST", "/v1/alert-rules", {**nowhere, "limit_s": limit_s})
        assert refused.status == 422


def test_the_secret_is_shown_once_and_written_down_nowhere(quiet: Api) -> None:
    made = target(quiet, "https://example.com/a-secret-path")
    for path in ("/v1/alert-targets", "/v1/audit"):
        assert made["secret"] not in quiet.get(path, caller="administrator").text
    assert "a-secret-path" not in quiet.get("/v1/audit", caller="administrator").text


def test_a_tenant_sees_the_alerts_of_its_vehicles_only(quiet: Api) -> None:
    settle(quiet)
    rule(quiet)
    silent_since(quiet, 0)
    assert len(looked(quiet)) == 1
    token = quiet.run(quiet.token(Role.VIEWER, tenant=NORTH))
    assert quiet.get("/v1/alerts", caller=token).json["alerts"] == []
    assert quiet.get("/v1/alert-rules", caller=token).status == 403


def test_what_was_resolved_long_ago_is_deleted(quiet: Api) -> None:
    rule(quiet)
    silent_since(quiet, 0)
    looked(quiet)
    assert quiet.run(prune(quiet.database, alerts.prune, now_ms() + 1_000)) == 0
    silent_since(quiet, now_ms())
    looked(quiet)
    assert quiet.run(prune(quiet.database, alerts.prune, now_ms() + 1_000)) == 1


def test_mail_goes_to_addresses_only_where_a_mail_server_is_set(url: str) -> None:
    body = {"name": "ops", "url": "mailto:ops@example.com"}
    with served(url, Settings(look_for_alerts_every_s=3_600)) as api:
        refused = api.call("POST", "/v1/alert-targets", body)
        assert refused.status == 422
        assert "--mail-server" in refused.problem
    server = mail_server_of("smtp://mail.example.com", "from@example.com")
    with served(url, Settings(look_for_alerts_every_s=3_600, mail_server=server)) as api:
        assert api.call("POST", "/v1/alert-targets", body).status == 201
        wrong = api.call("POST", "/v1/alert-targets", {**body, "url": "mailto:a@b,c@d"})
        assert wrong.status == 422
        assert "no address" in wrong.problem
