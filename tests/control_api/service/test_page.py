"""The page to read and try the API."""

from __future__ import annotations

import re
from urllib.parse import urljoin

from tests.control_api.service.api import Api


def test_the_page_and_all_that_it_loads_come_from_the_service(api: Api) -> None:
    page = api.get("/docs", caller=None)
    assert page.headers["Content-Type"].startswith("text/html")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) >= 3
    for link in loaded:
        assert "//" not in link
        asset = api.run(_status_and_type(api, urljoin("/docs", link)))
        assert asset[0] == 200
        assert "html" not in asset[1]
    assert "'self'" in page.headers["Content-Security-Policy"]
    assert "http" not in page.headers["Content-Security-Policy"]


def test_it_serves_no_other_files(api: Api) -> None:
    for name in ("x.js", "..%2F__init__.py", "swagger-ui.js.map", "%2e%2e/%2e%2e/__init__.py"):
        assert api.get(f"/docs/{name}", caller=None).status == 404


def test_the_page_asks_for_a_document_that_groups_by_collection(api: Api) -> None:
    start = api.get("/docs/start.js", caller=None).text
    assert 'url: "openapi.json"' in start
    assert "validatorUrl: null" in start
    document = api.get("/openapi.json", caller=None).json
    tags = {
        operation["tags"][0] for path in document["paths"].values() for operation in path.values()
    }
    assert {"beams", "terminals", "events", "service"} <= tags


async def _status_and_type(api: Api, path: str) -> tuple[int, str]:
    async with api.client.get(path) as response:
        await response.read()
        return response.status, response.headers["Content-Type"]
