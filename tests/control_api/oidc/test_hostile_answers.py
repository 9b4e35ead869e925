"""Nobody signs in by an answer that is not the provider's, or for another service or attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.control_api.oidc.hostile_provider import Claims, HostileProvider, part, rsa_key
from tests.control_api.oidc.real_provider import CLIENT_ID
from tests.control_api.oidc.service import PUBLIC, ProxiedBrowser, query_of, service_of
from tests.control_api.service.api import Api, Reply
from tests.free_port import free_port

SESSION = "__Secure-underpass-session"


@dataclass
class Case:
    """A service with an untrusted provider."""

    api: Api
    provider: HostileProvider
    browser: ProxiedBrowser

    def answered(self, page: str = "", **changed: str | None) -> Reply:
        """Sign in, with a good answer except for the changes; None leaves a member out."""
        asked = query_of(self.browser.begin(page))
        self.provider.nonce = asked["nonce"]
        query = {"code": "c", "state": asked["state"], "iss": self.provider.issuer, **changed}
        text = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
        return self.browser.call("GET", f"/v1/signed-in?{text}")

    def refused(self, text: str, status: int = 403, **changed: str | None) -> None:
        """Check that signing in is refused, with this text."""
        answer = self.answered("", **changed)
        assert (answer.status, text in answer.text) == (status, True), answer.text
        assert "Location" not in answer.headers
        assert SESSION not in self.browser.cookies
        assert self.api.get("/v1/users", caller="administrator").json["users"] == []


@pytest.fixture
def case(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Case]:
    database = tmp_path / "control.db"
    database.write_bytes(migrated_sqlite.read_bytes())
    provider, port = HostileProvider(), free_port()
    with service_of(f"sqlite:///{database}", f"http://127.0.0.1:{port}", tmp_path) as api:
        # In the event loop of the service.
        api.run(provider.start(port))
        yield Case(api, provider, ProxiedBrowser(api))
        api.run(provider.close())


def test_a_good_answer_signs_in(case: Case) -> None:
    assert case.answered().headers["Location"] == PUBLIC + "#/"
    assert case.browser.who().json["role"] == "operator"


def _unsigned(claims: Claims) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


def _now() -> int:
    return int(time.time())


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"nonce": "another attempt's"}, "nonce differs"),
        ({"nonce": None}, "nonce differs"),
        ({"nonce": ["x"]}, "nonce differs"),
        ({"aud": "somebody else"}, "aud"),
        ({"aud": ["somebody else"]}, "aud"),
        ({"aud": [CLIENT_ID, "somebody else"]}, "azp"),
        ({"azp": "somebody else"}, "azp"),
        ({"aud": None}, "aud"),
        ({"iss": "https://login.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "later"}, "exp"),
        ({"iat": 2**40}, "future"),
        ({"nbf": 2**40}, "not yet valid"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "x" * 256}, "subject"),
        ({"sub": 7}, "sub"),
    ],
)
def test_claims_of_an_id_token_that_is_not_for_this(case: Case, changed: Claims, text: str) -> None:
    case.provider.claims = lambda claims: {
        name: value for name, value in {**claims, **changed}.items() if value is not None
    }
    case.refused(text)


def test_a_token_of_another_time_is_good_within_the_leeway_only(case: Case) -> None:
    case.provider.claims = lambda claims: {**claims, "exp": _now() - 120}
    case.refused("expired")
    case.provider.claims = lambda claims: {**claims, "exp": _now() - 20}
    assert case.answered().status == 302


def test_signatures_that_anybody_could_make(case: Case) -> None:
    other = rsa_key("two")
    ways: list[Callable[[Claims], str]] = [
        _unsigned,
        case.provider.signed_with_public_key,
        lambda claims: case.provider.signed(claims, key=other),
        lambda claims: case.provider.signed(claims, kid="unknown"),
        lambda claims: case.provider.signed(claims)[:-8] + "AAAAAAAA",
        lambda _: "no.token.at-all",
        lambda _: "x" * 200_000,
    ]
    for way in ways:
        case.provider.sign = way
        case.refused("ID token")


def test_new_keys_of_the_provider_are_asked_for_but_not_again_and_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert case.answered().status == 302
    case.browser.cookies.clear()
    new = rsa_key("two")
    case.provider.published = [new]
    case.provider.sign = lambda claims: case.provider.signed(claims, kid="two", key=new)
    answer = case.answered()
    assert (answer.status, "not known" in answer.text) == (403, True)
    assert case.provider.asked.count("/jwks") == 1
    monkeypatch.setattr("underpass_control.oidc.documents._AGAIN_AFTER_S", 0.0)
    assert case.answered().status == 302
    assert case.provider.asked.count("/jwks") == 2


def test_answers_that_do_not_belong_to_the_attempt(case: Case) -> None:
    case.refused("begin again", 400, state="x")
    case.refused("begin again", 400, state="")
    case.refused("begin again", 400, state=None)
    case.refused("does not come from", 400, iss="https://login.example")
    case.provider.metadata = {"authorization_response_iss_parameter_supported": True}
    case.refused("no code", 400, code="")
    case.refused("no code", 400, code="c" * 4097)
    case.refused("access_denied", 403, code=None, error="access_denied")
    case.refused("an error", 403, error="%3Cscript%3E")
    assert "/token" not in case.provider.asked


def test_an_answer_without_the_provider_s_name_where_it_gives_one(case: Case) -> None:
    case.provider.metadata = {"authorization_response_iss_parameter_supported": True}
    case.refused("does not come from", 400, iss=None)


def test_userinfo_of_another_user_is_not_taken(case: Case) -> None:
    case.provider.metadata = {"userinfo_endpoint": f"{case.provider.issuer}/me"}
    case.provider.claims = lambda claims: {k: v for k, v in claims.items() if k != "groups"}
    case.provider.userinfo = {"sub": "2", "groups": ["admins"]}
    case.refused("another user")
    # Unsigned values do not overrule signed ones.
    case.provider.userinfo = {"sub": "1", "groups": ["noc"], "preferred_username": "root"}
    assert case.answered().status == 302
    assert case.browser.who().json["name"] == "ada"


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://login.example"},
        {"token_endpoint": "http://192.0.2.1/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"token_endpoint": ["x"]},
    ],
)
def test_what_a_provider_says_of_itself_is_checked(case: Case, changed: dict[str, Any]) -> None:
    case.provider.metadata = changed
    answer = case.browser.call("GET", "/v1/sign-in")
    assert answer.status == 502, answer.text


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b" " * 65_536)


async def _silent(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


def _deep(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="[" * 200_000)


def _bomb(_request: web.Request) -> web.StreamResponse:
    import gzip

    content = gzip.compress(b" " * 50_000_000)
    return web.Response(body=content, headers={"Content-Encoding": "gzip"})


def _moved(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


@pytest.mark.parametrize("way", [_endless, _silent, _deep, _bomb, _moved])
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/jwks"])
def test_answers_without_end_or_sense_cost_little(
    case: Case, monkeypatch: pytest.MonkeyPatch, way: Any, path: str
) -> None:
    monkeypatch.setattr("underpass_control.oidc.provider._WITHIN_S", 0.5)
    case.provider.instead[path] = way
    if path.startswith("/.well-known"):
        answer = case.browser.call("GET", "/v1/sign-in")
    else:
        answer = case.answered()
    assert (answer.status, "the provider" in answer.text) == (502, True), answer.text
    assert len(answer.text) < 1000


@pytest.mark.parametrize(
    ("page", "leads_to"),
    [
        ("beams/east%3Flink%3Dreturn%26x%3D1", "beams/east?link=return&x=1"),
        ("terminals%3Ftag%3DNight%2520buses", "terminals?tag=Night%20buses"),
        *(
            (page, "")
            for page in (
                *("//login.example", "https://login.example", "%5Clogin.example"),
                *("%0d%0aX:1", "beams/../x", "beams;x", "token%3Dupc_x", "x" * 300),
            )
        ),
    ],
)
def test_it_leads_back_to_the_console_and_nowhere_else(
    case: Case, page: str, leads_to: str
) -> None:
    assert case.answered(page).headers["Location"] == f"{PUBLIC}#/{leads_to}"


def test_a_cookie_that_was_planted_signs_nobody_in(case: Case) -> None:
    case.browser.cookies["__Host-underpass-sign-in"] = "x" * 43 + ".//login.example"
    answer = case.browser.call("GET", f"/v1/signed-in?code=c&state=x&iss={case.provider.issuer}")
    assert (answer.status, "Location" in answer.headers) == (400, False)
    # Over TLS, only the cookie name that no page without TLS can set counts.
    good = case.browser.begin()
    cookie = case.browser.cookies.pop("__Host-underpass-sign-in")
    case.browser.cookies["underpass-sign-in"] = cookie
    state = query_of(good)["state"]
    answer = case.browser.call("GET", f"/v1/signed-in?code=c&state={state}")
    assert answer.status == 400


def test_a_session_that_was_planted_is_not_the_one_that_begins(case: Case) -> None:
    case.browser.cookies[SESSION] = "ups_chosen-by-somebody-else"
    assert case.answered().status == 302
    assert "chosen" not in case.browser.cookies[SESSION]


def test_who_fails_again_and_again_does_not_have_the_provider_asked(case: Case) -> None:
    case.provider.claims = lambda claims: {**claims, "aud": "somebody else"}
    statuses = [case.answered().status for _ in range(33)]
    assert (statuses[0], statuses[-1]) == (403, 429)
    assert case.provider.asked.count("/token") <= 32


def test_without_tls_in_front_it_says_so_before_anybody_signs_in(case: Case) -> None:
    answer = case.api.get("/v1/sign-in", caller=None, follow=False)
    assert (answer.status, "--trusted-proxies" in answer.text) == (400, True)


def test_the_button_is_on_the_page_only_where_there_is_a_provider(
    case: Case, tmp_path: Path
) -> None:
    from underpass_control.http.console import ConsolePages

    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<html><head><style>a{}</style></head></html>")
    pages = ConsolePages(case.api.service._callers, tmp_path, provider="North <b>")

    async def shown(encoding: str) -> str:
        from aiohttp.test_utils import TestClient, TestServer

        application = web.Application()
        application.add_routes(pages.routes())
        headers = {"Accept-Encoding": encoding}
        async with (
            TestClient(TestServer(application)) as client,
            client.get("/", headers=headers) as answer,
        ):
            assert answer.status == 200
            return await answer.text()

    for encoding in ("gzip", "identity"):
        text = case.api.run(shown(encoding))
        assert '<meta name="provider" content="North &lt;b&gt;"></head>' in text
