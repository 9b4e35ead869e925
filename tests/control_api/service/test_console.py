"""How the console's files are served, and the newest positions that it begins with."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from underpass_control.http.callers import Callers
from underpass_control.http.console import ConsolePages
from underpass_control.http.problem import problems
from underpass_control.settings import Settings

from tests.control_api.service.api import FIRST, SECOND, Api, Reply, now_ms, served
from tests.control_api.service.test_positions import position, report

_PAGE = "<!DOCTYPE html><style>p{color:red}</style><script src=./assets/a-1.js></script>"
# `openssl dgst -sha256 -binary | base64` of the text between the tags.
_STYLE = "'sha256-p0bF+un5yUb9MBO6xRb8kPHlY2BdpHVtLiFkDrZPF64='"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder as a build leaves it."""
    folder = tmp_path / "console"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(_PAGE)
    (folder / "assets" / "a-1.js").write_text("1;" * 500)
    (folder / "assets" / "a-1.js.gz").write_bytes(gzip.compress(b"1;" * 500))
    (folder / "assets" / "w-1.mjs").write_text("2;")
    (tmp_path / "secret").write_text("secret")
    return folder


def asked(api: Api, folder: Path, *paths: str) -> list[Reply]:
    """Return the answers of pages over this folder."""

    async def run() -> list[Reply]:
        application = web.Application(middlewares=[problems])
        application.add_routes(ConsolePages(_callers(api), folder).routes())
        async with TestClient(TestServer(application)) as client:
            return [await _asked(client, path) for path in paths]

    return api.run(run())


def _callers(api: Api) -> Callers:
    callers: Callers = api.service._callers
    return callers


async def _asked(client: TestClient[web.Request, web.Application], path: str) -> Reply:
    headers = {"Accept-Encoding": "gzip"}
    async with client.get(path, headers=headers) as response:
        return Reply(response.status, response.headers, await response.text())


def test_the_page_allows_its_own_style_and_no_other_inline_thing(api: Api, built: Path) -> None:
    (page,) = asked(api, built, "/")
    assert page.text == _PAGE
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert f"style-src 'self' {_STYLE}" in policy
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert page.headers["Cache-Control"] == "no-cache"
    assert page.headers["X-Content-Type-Options"] == "nosniff"


def test_assets_are_kept_for_ever_and_come_compressed(api: Api, built: Path) -> None:
    script, worker = asked(api, built, "/assets/a-1.js", "/assets/w-1.mjs")
    assert script.text == "1;" * 500
    assert script.headers["Content-Encoding"] == "gzip"
    assert "immutable" in script.headers["Cache-Control"]
    assert "Accept-Encoding" in script.headers["Vary"]
    for one in (script, worker):
        assert one.headers["Content-Type"].startswith("text/javascript")
    # A worker has the policy of its own answer, a page's script that of the page.
    assert "default-src 'none'" in worker.headers["Content-Security-Policy"]
    assert "Content-Security-Policy" not in script.headers


def test_no_request_reaches_another_file(api: Api, built: Path) -> None:
    names = ("x.js", "a-1.js.gz", "..%2Findex.html", "..%2F..%2Fsecret", "%2e%2e/%2e%2e/secret")
    for reply in asked(api, built, *(f"/assets/{name}" for name in names)):
        assert reply.status == 404


def test_without_a_build_the_page_says_how_to_make_one(api: Api, tmp_path: Path) -> None:
    page, asset = asked(api, tmp_path / "nothing", "/", "/assets/a-1.js")
    assert "make console" in page.text
    assert 'href="docs"' in page.text
    assert (page.status, asset.status) == (200, 404)
    assert api.get("/docs", caller=None).status == 200


def test_who_asks_too_often_is_refused_and_the_limit_is_the_addresss(url: str, built: Path) -> None:
    # Few enough that even a busy machine asks more often.
    few = Settings(address_requests_per_s=1)
    most = round(4 * few.address_requests_per_s)
    with served(url, few) as api:
        statuses = [reply.status for reply in asked(api, built, *["/assets/x.js"] * (10 * most))]
    assert set(statuses[: most // 2]) == {404}
    assert 429 in statuses


def test_the_newest_position_of_each_terminal_is_read_in_pages(api: Api) -> None:
    at = now_ms()
    assert api.get("/v1/positions").json == {"positions": []}
    report(
        api,
        position(at - 2000, longitude=1.0),
        position(at - 1000, longitude=2.0),
        {**position(at - 3000, longitude=3.0), "terminal": SECOND},
    )
    first = api.get("/v1/positions?limit=1").json
    rest = api.get(f"/v1/positions?limit=1&cursor={first['next']}").json
    found = first["positions"] + rest["positions"]
    assert [(one["terminal"], one["longitude"]) for one in found] == [(FIRST, 2.0), (SECOND, 3.0)]
    assert len(api.get("/v1/positions?beam=ku-1").json["positions"]) == 2
    assert api.get("/v1/positions?beam=other").json == {"positions": []}


def test_a_terminal_does_not_read_where_the_others_are(api: Api) -> None:
    assert api.get("/v1/positions", caller="first").status == 403
    assert api.get("/v1/positions", caller=None).status == 401
