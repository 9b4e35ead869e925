"""Users sign in by a real provider, and have the rights that it states, while it states them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control_api.oidc.real_provider import RealProvider, browser_session, signed_in_at
from tests.control_api.oidc.service import PUBLIC, ProxiedBrowser, query_of, service_of
from tests.control_api.service.api import Api

ADA: dict[str, Any] = {"preferred_username": "Ada", "groups": ["staff", "noc"]}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProvider]:
    running = RealProvider(tmp_path_factory.mktemp("provider"), PUBLIC)
    yield running
    running.close()


@pytest.fixture
def api(url: str, provider: RealProvider, tmp_path: Path) -> Iterator[Api]:
    provider.set_accounts({"ada": ADA})
    with service_of(url, provider.issuer, tmp_path) as running:
        yield running


def answer_for(api: Api, at: str, name: str) -> str:
    """Sign in at the provider; return the URL that it sends the browser to."""

    async def run() -> str:
        async with browser_session() as session:
            return await signed_in_at(session, at, name)

    return api.run(run())


def signed_in(api: Api, name: str = "ada") -> ProxiedBrowser:
    browser = ProxiedBrowser(api)
    back = answer_for(api, browser.begin(), name)
    assert back.startswith(PUBLIC)
    answer = browser.call("GET", back)
    assert answer.status == 302, answer.text
    return browser


def test_somebody_whom_the_provider_knows_signs_in_with_what_the_groups_grant(api: Api) -> None:
    browser = ProxiedBrowser(api)
    at = browser.begin("beams/ku-1")
    asked = query_of(at)
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == PUBLIC + "v1/signed-in"
    answer = browser.call("GET", answer_for(api, at, "ada"))
    assert (answer.status, answer.headers["Location"]) == (302, PUBLIC + "#/beams/ku-1")
    # The attempt is over; a session is left, whose cookie is for the API's paths.
    assert list(browser.cookies) == ["__Secure-underpass-session"]
    assert "Path" not in answer.headers.getall("Set-Cookie")[1]
    who = browser.who().json
    assert (who["name"], who["role"], who["kind"]) == ("ada", "operator", "user")
    beam = {"name": "Ka", "forward_capacity_bps": 1, "return_capacity_bps": 1}
    assert browser.call("PUT", "/v1/beams/ka", beam).status == 201
    users = api.get("/v1/users", caller="administrator").json["users"]
    assert [(one["name"], "issuer" in one) for one in users] == [("ada", True)]
    entries = api.get("/v1/audit", caller="administrator").json["entries"]
    done = [(one["action"], one["target"], one["actor"]) for one in entries]
    assert ("set", "/v1/users/ada", "ada") in done
    assert ("sign in", "/v1/session", "ada") in done


def test_it_signs_out_here_and_is_sent_to_sign_out_there(api: Api, provider: RealProvider) -> None:
    browser = signed_in(api)
    browser.who()
    assert browser.call("DELETE", "/v1/session").status == 204
    assert browser.who().status == 401
    to = browser.call("GET", "/v1/sign-out").headers["Location"]
    assert to.startswith(provider.issuer + "/session/end?")
    assert query_of(to)["post_logout_redirect_uri"] == PUBLIC

    async def asked() -> int:
        async with browser_session() as session, session.get(to) as page:
            return page.status

    assert api.run(asked()) == 200


def test_other_groups_end_the_sessions_with_what_the_former_ones_gave(
    api: Api, provider: RealProvider
) -> None:
    api.call("PUT", "/v1/tenants/north", {"name": "North"}, caller="administrator")
    before = signed_in(api)
    provider.set_accounts({"ada": {**ADA, "groups": "north"}})
    after = signed_in(api)
    assert before.who().status == 401
    who = after.who().json
    assert (who["role"], who["tenant"]) == ("viewer", "north")


def test_who_is_granted_nothing_any_more_loses_every_session(
    api: Api, provider: RealProvider
) -> None:
    before = signed_in(api)
    provider.set_accounts({"ada": {**ADA, "groups": ["staff"]}})
    browser = ProxiedBrowser(api)
    refused = browser.call("GET", answer_for(api, browser.begin(), "ada"))
    assert (refused.status, "granted nothing" in refused.text) == (403, True)
    assert "__Secure-underpass-session" not in browser.cookies
    assert before.who().status == 401
    assert api.get("/v1/users", caller="administrator").json["users"] == []


def test_who_is_removed_at_the_provider_has_access_until_the_session_ends(
    url: str, provider: RealProvider, tmp_path: Path
) -> None:
    provider.set_accounts({"ada": ADA})
    with service_of(url, provider.issuer, tmp_path, hours=0.0005) as api:
        browser = signed_in(api)
        assert browser.who().status == 200
        provider.set_accounts({})
        api.run(_until_ended(browser, api))
        with pytest.raises(AssertionError):
            signed_in(api)


async def _until_ended(browser: ProxiedBrowser, api: Api) -> None:
    import asyncio

    headers = {
        "X-Forwarded-Proto": "https",
        "Cookie": "; ".join(f"{k}={v}" for k, v in browser.cookies.items()),
    }
    async with asyncio.timeout(20):
        while (await api.ask("GET", "/v1/session", caller=None, headers=headers)).status == 200:
            await asyncio.sleep(0.2)


def test_an_administrator_removes_the_user_at_once_and_sets_neither_role_nor_password(
    api: Api,
) -> None:
    browser = signed_in(api)
    body = {"role": "viewer", "password": "a long enough password"}
    refused = api.call("PUT", "/v1/users/ada", body, caller="administrator")
    assert (refused.status, "signs in by" in refused.problem) == (409, True)
    browser.who()
    own = {"password": "x", "new_password": "a long enough password"}
    assert browser.call("PUT", "/v1/password", own).status == 409
    sign_in = {"name": "ada", "password": ""}
    assert api.call("POST", "/v1/session", sign_in, caller=None).status == 401
    assert api.call("DELETE", "/v1/users/ada", caller="administrator").status == 204
    assert browser.who().status == 401


def test_a_local_user_of_the_same_name_is_not_taken_over(api: Api) -> None:
    local = {"role": "administrator", "password": "a long enough password"}
    assert api.call("PUT", "/v1/users/ada", local, caller="administrator").status == 201
    browser = ProxiedBrowser(api)
    refused = browser.call("GET", answer_for(api, browser.begin(), "ada"))
    assert (refused.status, "another user ada" in refused.text) == (403, True)
    assert browser.who().status == 401


def test_the_name_of_another_subject_is_not_taken_over(api: Api, provider: RealProvider) -> None:
    signed_in(api)
    provider.set_accounts({"bob": {**ADA, "groups": ["admins"]}})
    browser = ProxiedBrowser(api)
    refused = browser.call("GET", answer_for(api, browser.begin(), "bob"))
    assert (refused.status, "another user ada" in refused.text) == (403, True)


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"preferred_username": "<script>alert(1)</script>"}, "is no name"),
        ({"preferred_username": ["ada"]}, "is no name"),
        ({}, "is no name"),
        ({"preferred_username": "eve", "groups": {"noc": True}}, "granted nothing"),
        ({"preferred_username": "eve", "groups": "nowhere"}, "which there is not"),
    ],
)
def test_claims_that_do_not_do_are_refused_in_words(
    api: Api, provider: RealProvider, claims: dict[str, Any], text: str
) -> None:
    provider.set_accounts({"eve": claims})
    browser = ProxiedBrowser(api)
    refused = browser.call("GET", answer_for(api, browser.begin(), "eve"))
    assert (refused.status, text in refused.text) == (403, True)
    assert "<script>" not in refused.text
    assert browser.who().status == 401


def test_a_code_is_good_once_and_in_its_own_browser_only(api: Api) -> None:
    browser, other = ProxiedBrowser(api), ProxiedBrowser(api)
    back = answer_for(api, browser.begin(), "ada")
    attempt = dict(browser.cookies)
    # Another user is made to open it (login CSRF): without an attempt, and with one of their own.
    assert other.call("GET", back).status == 400
    other.begin()
    refused = other.call("GET", back)
    assert (refused.status, "begin again" in refused.text) == (400, True)
    assert browser.call("GET", back).status == 302
    assert browser.call("GET", back).status == 400
    # Even with the attempt's cookie brought back, the provider gives nothing for a used code.
    browser.cookies = attempt
    replayed = browser.call("GET", back)
    assert (replayed.status, "invalid_grant" in replayed.text) == (502, True)
    assert "__Secure-underpass-session" not in browser.cookies


def test_a_code_of_another_attempt_of_the_same_browser_is_refused(api: Api) -> None:
    browser = ProxiedBrowser(api)
    first = query_of(answer_for(api, browser.begin(), "ada"))
    second = query_of(answer_for(api, browser.begin(), "ada"))
    mixed = f"/v1/signed-in?code={first['code']}&state={second['state']}&iss={second['iss']}"
    # PKCE: the code was given for the first attempt's challenge.
    answer = browser.call("GET", mixed)
    assert (answer.status, "invalid_grant" in answer.text) == (502, True)
