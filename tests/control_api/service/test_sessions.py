"""Users: signing in and out, what their cookies may do, and when their sessions end."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.access import passwords, sessions, users
from underpass_control.access.users import password_hash_of
from underpass_control.http.sign_in import SignInLimits
from underpass_control.settings import Settings
from underpass_control.storage.models import UserSession

from tests.control_api.service.api import FIRST, Api, Reply, served
from tests.control_api.service.two_tenants import PASSWORD

USER = {"role": "operator", "password": PASSWORD}
OTHER_PASSWORD = "another long password"  # noqa: S105 - a test's


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    """The service with a user `ada`, an operator, and a trusted proxy."""
    with served(url) as running:
        running.add_beam()
        made = running.call("PUT", "/v1/users/ada", USER, caller="administrator")
        assert made.status == 201, made.text
        yield running


class Browser:
    """A user's browser, as far as cookies are concerned."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.cookie = ""
        self.csrf = ""
        # The paths below this one have the cookie.
        self._below = ""

    def sign_in(self, name: str = "ada", password: str = PASSWORD) -> Reply:
        """Sign in, with whatever cookie there is."""
        body = {"name": name, "password": password}
        answer = self._api.call("POST", "/v1/session", body, caller=None, headers=self.headers())
        if answer.status == 201:
            self.take(answer, "/v1/session")
        return answer

    def take(self, answer: Reply, path: str) -> None:
        """Keep the cookie that a path's answer sets, for the paths beside it (RFC 6265, 5.1.4)."""
        (morsel,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        self._below = morsel["path"] or path.rpartition("/")[0]
        self.cookie = f"{morsel.key}={morsel.value}"
        self.csrf = answer.json["csrf_token"]

    def headers(self, *, csrf: bool = True) -> dict[str, str]:
        """Return what goes with a request."""
        shown = {"X-CSRF-Token": self.csrf} if csrf and self.csrf else {}
        return {**shown, **({"Cookie": self.cookie} if self.cookie else {})}

    def call(self, method: str, path: str, body: object = None, *, csrf: bool = True) -> Reply:
        """Make a request, with the cookie if its path matches."""
        headers = self.headers(csrf=csrf) if path.startswith(f"{self._below}/") else {}
        return self._api.call(method, path, body, caller=None, headers=headers)


def signed_in(api: Api) -> Browser:
    browser = Browser(api)
    assert browser.sign_in().status == 201
    return browser


BEAM = {"name": "Ka", "forward_capacity_bps": 1, "return_capacity_bps": 1}


def test_a_user_signs_in_and_does_what_the_role_allows(api: Api) -> None:
    browser = Browser(api)
    answer = browser.sign_in(" Ada")
    assert answer.headers["Cache-Control"] == "no-store"
    assert (answer.json["name"], answer.json["role"]) == ("ada", "operator")
    attributes = answer.headers["Set-Cookie"].split("; ")[1:]
    # No path: it goes to /v1 only. No Secure: the test has no TLS.
    assert attributes == ["HttpOnly", "SameSite=Strict"]
    assert browser.call("PUT", "/v1/beams/ka", BEAM).status == 201
    assert browser.call("GET", "/v1/users").status == 403
    who = browser.call("GET", "/v1/session").json
    assert (who["kind"], who["csrf_token"]) == ("user", browser.csrf)


def test_over_tls_the_cookie_is_secure_if_a_trusted_proxy_says_so(api: Api) -> None:
    from ipaddress import ip_network

    body = {"name": "ada", "password": PASSWORD}
    https = {"X-Forwarded-Proto": "https"}
    told = api.call("POST", "/v1/session", body, caller=None, headers=https)
    assert "Secure" not in told.headers["Set-Cookie"]
    api.service._callers._trusted = (ip_network("127.0.0.0/8"),)
    told = api.call("POST", "/v1/session", body, caller=None, headers=https)
    cookie, *attributes = told.headers["Set-Cookie"].split("; ")
    assert cookie.startswith("__Secure-")
    assert "Secure" in attributes
    # With TLS, a cookie that a page without TLS could have set is ignored.
    plain = {"Cookie": cookie.removeprefix("__Secure-"), **https}
    assert api.get("/v1/session", caller=None, headers=plain).status == 401
    assert api.get("/v1/session", caller=None, headers={"Cookie": cookie, **https}).status == 200


def test_a_cookie_alone_changes_nothing(api: Api) -> None:
    browser = signed_in(api)
    for csrf in ("", "0" * 64, signed_in(api).csrf):
        forged = {"Cookie": browser.cookie, "X-CSRF-Token": csrf}
        for method, path, body in (
            ("PUT", "/v1/beams/ka", BEAM),
            ("DELETE", f"/v1/terminals/{FIRST}", None),
            ("POST", "/v1/positions", {"positions": []}),
            ("DELETE", "/v1/sessions", None),
        ):
            refused = api.call(method, path, body, caller=None, headers=forged)
            assert (refused.status, "X-CSRF-Token" in refused.problem) == (403, True)
    assert api.get("/v1/beams/ka").status == 404
    assert browser.call("GET", "/v1/terminals", csrf=False).status == 200


async def _status(api: Api, method: str, path: str, head: bytes, body: bytes = b"") -> int:
    """Make a request with headers that client libraries do not send; return its status."""
    reader, writer = await asyncio.open_connection(api.client.host, api.client.port)
    rest = b"Host: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    length = f"Content-Length: {len(body)}\r\n\r\n".encode()
    writer.write(f"{method} {path} HTTP/1.1\r\n".encode() + head + rest + length + body)
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


def test_headers_that_are_no_utf_8_are_wrong_and_no_failure(api: Api) -> None:
    cookie = f"Cookie: {signed_in(api).cookie}\r\n".encode()
    forged = cookie + b"X-CSRF-Token: \xff\r\n"
    assert api.run(_status(api, "DELETE", "/v1/sessions", forged)) == 403
    body = json.dumps({"name": "ada", "password": PASSWORD}).encode()
    other = b"Cookie: underpass-session=\xff\r\n"
    assert api.run(_status(api, "POST", "/v1/session", other, body)) == 201


def test_a_form_of_another_site_cannot_sign_anybody_in(api: Api) -> None:
    body = f'{{"name": "ada", "password": "{PASSWORD}"}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = api.call("POST", "/v1/session", body, caller=None, content_type=kind)
        assert answer.status == 415
        assert "Set-Cookie" not in answer.headers


def test_signing_in_always_begins_a_new_session_and_ends_the_one_before(api: Api) -> None:
    browser = Browser(api)
    browser.cookie = "underpass-session=ups_chosen-by-somebody-else"
    assert browser.sign_in().status == 201
    first = browser.cookie
    assert "chosen" not in first
    assert browser.sign_in().status == 201
    assert browser.cookie != first
    assert api.get("/v1/session", caller=None, headers={"Cookie": first}).status == 401
    assert browser.call("GET", "/v1/session").status == 200


def test_a_sessions_secret_is_no_bearer_token_and_a_token_no_cookie(api: Api) -> None:
    secret = signed_in(api).cookie.split("=", 1)[1]
    assert api.get("/v1/session", caller=secret).status == 401
    cookie = {"Cookie": f"underpass-session={api.tokens['operator']}"}
    assert api.get("/v1/session", caller=None, headers=cookie).status == 401


def test_signing_out_ends_this_session_and_signing_out_everywhere_all(api: Api) -> None:
    here, there, third = signed_in(api), signed_in(api), signed_in(api)
    gone = here.call("DELETE", "/v1/session")
    assert gone.status == 204
    assert "Max-Age=0" in gone.headers["Set-Cookie"]
    ended = here.call("GET", "/v1/session")
    assert (ended.status, ended.problem) == (401, "the session has ended: sign in again")
    assert there.call("DELETE", "/v1/sessions").json == {"ended": 2}
    assert [one.call("GET", "/v1/session").status for one in (there, third)] == [401, 401]
    assert api.call("DELETE", "/v1/session").status == 409


def test_one_changes_ones_own_password_and_only_with_the_present_one(api: Api) -> None:
    here, there = signed_in(api), signed_in(api)
    wrong = {"password": "something else", "new_password": OTHER_PASSWORD}
    assert here.call("PUT", "/v1/password", wrong).status == 403
    short = {"password": PASSWORD, "new_password": "short"}
    assert here.call("PUT", "/v1/password", short).status == 422
    right = {"password": PASSWORD, "new_password": OTHER_PASSWORD}
    changed = here.call("PUT", "/v1/password", right)
    here.take(changed, "/v1/password")
    assert here.call("GET", "/v1/session").status == 200
    assert there.call("GET", "/v1/session").status == 401
    assert Browser(api).sign_in().status == 401
    assert Browser(api).sign_in(password=OTHER_PASSWORD).status == 201


def _stream_ends(api: Api, browser: Browser, change: Any) -> tuple[float, str]:
    """Return how long after a change a stream of events ends, and its last words."""

    async def follow() -> tuple[float, str]:
        async with api.client.get("/v1/events", headers=browser.headers()) as answer:
            assert answer.status == 200
            await answer.content.readline()
            began = time.monotonic()
            await asyncio.wait_for(change(), 10)
            text = await asyncio.wait_for(answer.content.read(), 10)
            return time.monotonic() - began, text.decode()

    return api.run(follow())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/v1/users/ada", None),
        ("DELETE", "/v1/users/ada/sessions", None),
        ("PUT", "/v1/users/ada", {"role": "viewer"}),
        ("PUT", "/v1/users/ada", {"role": "operator", "tenant": "default"}),
        ("PUT", "/v1/users/ada", {"role": "operator", "password": OTHER_PASSWORD}),
    ],
)
def test_sessions_and_streams_end_when_the_account_changes(
    api: Api, method: str, path: str, body: object
) -> None:
    browser = signed_in(api)

    async def change() -> None:
        assert (await api.ask(method, path, body, caller="administrator")).status < 300

    _, last = _stream_ends(api, browser, change)
    assert "sign in again" in last
    assert browser.call("GET", "/v1/session").status == 401


def test_a_session_that_begins_while_the_account_changes_ends_too(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[asyncio.Task[Reply]] = []
    reads = itertools.count(1)
    read = password_hash_of

    async def read_and_change(connection: AsyncConnection, name: str) -> tuple[int, str] | None:
        found = await read(connection, name)
        if next(reads) == 2:
            # Once more, in the transaction that begins the session.
            role = {"role": "viewer"}
            change = api.ask("PUT", "/v1/users/ada", role, caller="administrator")
            changes.append(asyncio.create_task(change))
            await asyncio.sleep(0.5)
        return found

    monkeypatch.setattr("underpass_control.http.sessions.password_hash_of", read_and_change)
    browser = signed_in(api)

    async def changed() -> int:
        return (await changes[0]).status

    assert api.run(changed()) == 200
    assert browser.call("GET", "/v1/session").status == 401


def test_what_changes_nothing_ends_no_session(api: Api) -> None:
    browser = signed_in(api)
    same = api.call("PUT", "/v1/users/ada", {"role": "operator"}, caller="administrator")
    assert same.status == 200
    assert browser.call("GET", "/v1/session").status == 200


def test_another_process_ends_streams_too(api: Api) -> None:
    """The command line, and other replicas, change the database only."""
    browser = signed_in(api)

    async def change() -> None:
        async with api.database.transaction() as connection:
            row = await users.get_user(connection, "ada")
            assert row is not None
            await users.remove_user(connection, row.id)

    _, last = _stream_ends(api, browser, change)
    assert "sign in again" in last


def test_whoever_changes_or_removes_a_user_takes_it_before_its_sessions(api: Api) -> None:
    """In another order, two that do so at once might wait for each other."""
    signed_in(api)
    taken: list[str] = []

    def note(*arguments: Any) -> None:
        found = re.match(r"(?:UPDATE|DELETE FROM) (\w+)", arguments[2])
        if found:
            taken.append(found[1])

    async def run() -> None:
        async with api.database.transaction() as connection:
            event.listen(connection.sync_connection, "before_cursor_execute", note)
            row = await users.get_user(connection, "ada")
            assert row is not None
            await users.change_user(connection, row.id, {"role": "viewer"})
            taken.append("then")
            assert await users.remove_user(connection, row.id) == []

    api.run(run())
    changed, removed = taken[: taken.index("then")], taken[taken.index("then") + 1 :]
    assert changed == ["user_account", "user_session"]
    assert removed == ["user_account", "user_session", "user_account"]


@pytest.fixture
def short_lived(url: str) -> Iterator[Api]:
    """A service whose sessions end after 2 s of idleness, and after 5 s in any case."""
    with served(url, Settings(session_idle_s=2, session_lasts_s=5)) as running:
        running.call("PUT", "/v1/users/ada", USER, caller="administrator")
        yield running


def test_a_session_ends_when_it_is_not_used_and_at_a_fixed_time(
    short_lived: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, clock = short_lived, _Clock(monkeypatch)
    idle = signed_in(api)
    clock.advance(2.5)
    assert idle.call("GET", "/v1/session").status == 401
    used = signed_in(api)
    lasted = 0.0
    while used.call("GET", "/v1/session").status == 200:
        # Its use is stored.
        api.run(api.service._callers._check_used(time.time_ns() // 1_000_000))
        clock.advance(1.0)
        lasted += 1.0
        assert lasted < 10
    # Longer than idleness allows, but not for ever.
    assert 4 < lasted <= 6


def test_a_session_ends_no_sooner_by_a_use_that_is_stored_late(url: str) -> None:
    """Another replica has already stored a later use."""
    with served(url) as api:
        api.call("PUT", "/v1/users/ada", USER, caller="administrator")

        async def ends_ms() -> list[int | None]:
            async with api.database.transaction() as connection:
                ada = await users.get_user(connection, "ada")
                assert ada is not None
                text = await sessions.begin_session(
                    connection, ada.id, now_ms=0, lasts_ms=5_000, idle_ms=2_000
                )
                one = await sessions.find_session(connection, text, 0)
                assert one is not None
                found = []
                for now_ms in (1_500, 1_000, 3_400, 3_200, 1_600):
                    await sessions.touch_sessions(connection, [one.credential.id], now_ms, 2_000)
                    query = select(UserSession.idle_until_ms)
                    found.append(await connection.scalar(query))
                return found

        assert api.run(ends_ms()) == [3_500, 3_500, 5_000, 5_000, 5_000]


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Time stands still between advances, so nothing expires on a busy machine.
        self._now_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: self._now_ns)

    def advance(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


def test_a_name_that_does_not_exist_costs_what_a_wrong_password_does(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    real = passwords._verified

    def counted(hashed: str, text: str) -> bool:
        verified.append(hashed)
        return real(hashed, text)

    monkeypatch.setattr(passwords, "_verified", counted)
    answers = [
        Browser(api).sign_in(name, "a wrong password")
        for name in ("ada", "nobody", "no such\x00name", "-")
    ]
    assert {(one.status, one.problem) for one in answers} == {
        (401, "there is no user of that name with that password")
    }
    assert len(verified) == len(answers)
    kinds = {hashed.rsplit("$", 2)[0] for hashed in verified}
    # The same algorithm with the same parameters, so the same work.
    assert len(kinds) == 1


def test_failed_tries_are_slowed_and_say_for_how_long(api: Api) -> None:
    for _ in range(8):
        assert Browser(api).sign_in(password="a wrong password").status == 401  # noqa: S106
    refused = Browser(api).sign_in()
    assert refused.status == 429
    assert 0 < int(refused.headers["Retry-After"]) <= 31
    # Another account is not slowed, and existing sessions stay.
    made = api.call("PUT", "/v1/users/bob", USER, caller="administrator")
    assert made.status == 201
    assert Browser(api).sign_in("bob").status == 201


def test_tries_that_nobody_has_judged_are_not_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object) -> bool:
        raise passwords.BusyError("too many")

    with monkeypatch.context() as patched:
        patched.setattr(passwords.Passwords, "is_right", busy)
        for _ in range(9):
            assert Browser(api).sign_in().status == 503
    assert Browser(api).sign_in().status == 201


def test_limits_of_sign_in_are_by_account_and_by_address() -> None:
    limits = SignInLimits()
    taken = [limits.take("ada", "a", 0.0) for _ in range(9)]
    assert taken[:8] == [0.0] * 8
    assert taken[8] == pytest.approx(30.0)
    # The account can still sign in from elsewhere, and other accounts from the same address.
    assert limits.take("ada", "b", 0.0) == 0.0
    assert limits.take("bob", "a", 0.0) == 0.0
    # Many addresses do not give as many tries.
    tried = sum(limits.take("ada", f"address {n // 8}", 0.0) == 0 for n in range(400))
    assert tried == 40 - 9
    # An address that tries many accounts is slowed for all of them.
    spread = sum(limits.take(f"account {n}", "a", 0.0) == 0 for n in range(400))
    assert spread == 30 - 9
    assert limits.take("ada", "a", 100_000.0) == 0.0


def test_right_tries_are_not_counted() -> None:
    limits = SignInLimits()
    for _ in range(100):
        assert limits.take("ada", "a", 0.0) == 0.0
        limits.take_back("ada", "a", 0.0)


async def test_passwords_wait_for_each_other_and_too_many_are_refused() -> None:
    made = passwords.Passwords()
    found = await asyncio.gather(
        *(made.is_right("a password", None) for _ in range(40)), return_exceptions=True
    )
    busy = [one for one in found if isinstance(one, passwords.BusyError)]
    assert len(busy) == 40 - 16
    assert [one for one in found if one not in busy] == [False] * 16


def test_passwords_are_stored_as_argon2_hashes_only(api: Api) -> None:
    from sqlalchemy import text

    async def rows() -> str:
        async with api.database.reading() as connection:
            found = await connection.execute(text("SELECT password_hash FROM user_account"))
            told = await connection.execute(text("SELECT before, after FROM audit_entry"))
            return f"{found.all()} {told.all()}"

    stored = api.run(rows())
    assert "$argon2id$v=19$m=65536,t=3,p=4$" in stored
    assert PASSWORD not in stored
    listed = api.get("/v1/users", caller="administrator").text
    assert "argon2" not in listed


def test_a_user_has_so_many_sessions_and_no_more(api: Api) -> None:
    first = signed_in(api)
    for _ in range(20):
        latest = signed_in(api)
    assert latest.call("GET", "/v1/session").status == 200
    assert first.call("DELETE", "/v1/sessions").status in (200, 401)
    assert latest.call("DELETE", "/v1/sessions").json["ended"] <= 20


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("Ada", USER, 422),
        ("a b", USER, 422),
        ("x" * 65, USER, 422),
        ("bob", {"role": "operator"}, 422),
        ("bob", {"role": "terminal", "password": PASSWORD}, 422),
        ("bob", {"role": "viewer", "password": "short"}, 422),
        ("bob", {"role": "viewer", "password": "x" * 257}, 422),
        ("bob", {"role": "viewer", "password": PASSWORD, "tenant": "nowhere"}, 409),
    ],
)
def test_users_that_cannot_be_are_refused(
    unchanged: Api, name: str, body: dict[str, object], status: int
) -> None:
    refused = unchanged.call("PUT", f"/v1/users/{name}", body, caller="administrator")
    assert refused.status == status, refused.text
    assert unchanged.get("/v1/users", caller="administrator").json["users"] == []
