"""Silence counts for alerts only as far as the service has been able to hear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from underpass_control.alerts import evidence
from underpass_control.alerts.watch import Watch
from underpass_control.metrics import Metrics
from underpass_control.storage import alerts
from underpass_control.storage.database import DatabaseLostError

from tests.control_api.service.api import Api
from tests.control_api.service.test_alerts import looked, quiet, rule, silent_since

__all__ = ["quiet"]


@dataclass
class Process:
    """A process that has just started, and looks when the test says so."""

    api: Api
    now_s: float = 1_000.0

    def __post_init__(self) -> None:
        database, changes = self.api.database, self.api.changes
        self._watch = Watch(database, changes, Metrics(), clock_s=lambda: self.now_s)

    def looks(self, at_s: float) -> list[dict[str, Any]]:
        """Look at a time; return the alerts that fire."""
        self.now_s = at_s
        self.api.run(self._watch.look())
        found: list[dict[str, Any]] = self.api.get("/v1/alerts?firing=true").json["alerts"]
        return found


def test_after_a_start_and_after_an_outage_of_the_database_terminals_have_the_limit_to_report(
    quiet: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        raise DatabaseLostError("away")

    rule(quiet)
    silent_since(quiet, 0)
    process = Process(quiet)
    assert process.looks(1_000.0) == []
    assert process.looks(1_060.0) == []
    with monkeypatch.context() as patched:
        patched.setattr(evidence, "read", lost)
        with pytest.raises(DatabaseLostError):
            process.looks(1_065.0)
    assert process.looks(1_070.0) == []
    assert process.looks(1_130.0) == []
    assert len(process.looks(1_131.0)) == 1


def test_a_write_that_gives_way_to_another_process_is_no_outage(
    quiet: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gives_way(*_: object) -> None:
        raise DatabaseLostError("it has given way to another process")

    rule(quiet)
    silent_since(quiet, 0)
    process = Process(quiet)
    assert process.looks(1_000.0) == []
    with monkeypatch.context() as patched:
        patched.setattr(alerts, "fire", gives_way)
        with pytest.raises(DatabaseLostError):
            process.looks(1_061.0)
    assert len(process.looks(1_062.0)) == 1


def test_a_process_that_has_just_started_ends_no_alert_of_another_one(quiet: Api) -> None:
    rule(quiet)
    silent_since(quiet, 0)
    (one,) = looked(quiet)
    assert Process(quiet).looks(1_000.0) == [one]
