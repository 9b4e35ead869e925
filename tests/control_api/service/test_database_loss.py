"""What holds while PostgreSQL is away: nothing is lost, and clients know to come again."""

from __future__ import annotations

import pytest

from tests.control_api import postgresql
from tests.control_api.service.api import FIRST, now_ms, served
from tests.control_api.service.conftest import migrate
from tests.control_api.service.test_positions import moment, position, report, times


def test_reports_are_put_off_while_postgresql_is_down_and_kept_again_after() -> None:
    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.server() as server:
        server.sql("CREATE DATABASE control")
        migrate(server.url("control"))
        with served(server.url("control")) as api:
            api.add_beam()
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
