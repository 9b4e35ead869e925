"""While PostgreSQL is away, nothing is lost, and clients are told to try again."""

from __future__ import annotations

import pytest

from tests.control_api import postgresql
from tests.control_api.service.api import FIRST, Api, now_ms
from tests.control_api.service.test_positions import moment, position, report, times
from tests.control_api.service.test_reports import entry, link, post, sent_bits, status, taken


def test_reports_are_put_off_while_postgresql_is_down_and_kept_again_after(
    monkeypatch: pytest.MonkeyPatch, api_and_server: tuple[Api, postgresql.Server]
) -> None:
    monkeypatch.setattr("underpass_control.http.status._READY_FOR_S", 0.0)
    api, server = api_and_server
    start = now_ms()
    assert report(api, position(start)).status == 202
    server.stop()
    for _ in range(3):
        refused = report(api, position(start + 1))
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert "away" in refused.problem
    assert api.get("/health", caller=None).status == 200
    assert api.get("/ready", caller=None).status == 503
    assert api.get(f"/v1/terminals/{FIRST}").status == 503
    server.start()
    assert report(api, position(start + 1), position(start)).status == 202
    assert api.get("/ready", caller=None).status == 200
    assert times(api) == [moment(start), moment(start + 1)]


def test_what_gateways_report_is_put_off_and_counted_once(
    api_and_server: tuple[Api, postgresql.Server],
) -> None:
    api, server = api_and_server
    start = now_ms() - 20_000

    def of(n: int) -> object:
        made = status(
            link(sent_bytes=100 * n),
            uptime_ms=1_000 * n,
            time_ms=start + 1_000 * n,
            synchronised=True,
        )
        return entry(made)

    taken(api, *(of(n) for n in range(1, 6)))
    server.stop()
    for _ in range(2):
        refused = post(api, *(of(n) for n in range(1, 16)))
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    server.start()
    taken(api, *(of(n) for n in range(1, 16)))
    assert sent_bits(api, start, start + 20_000) == 8 * 1_500
