"""Callers cannot fill the disk with log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog import DropEvent
from underpass_control.logs import Limit, OfLibraries


def test_an_event_is_written_as_often_as_may_be_and_what_is_left_out_is_counted() -> None:
    now_s = 0.0
    limit = Limit(lambda: now_s)

    def written(event: str, count: int) -> list[int]:
        lines = []
        for _ in range(count):
            try:
                lines.append(limit(None, "info", {"event": event}).get("left_out", 0))
            except DropEvent:
                continue
        return lines

    assert written("refused", 1_000) == [0] * 200
    # Other events are still written.
    assert written("planned", 1) == [0]
    now_s = 1.0
    assert written("refused", 100) == [800, *([0] * 9)]
    now_s = 3_600.0
    assert written("refused", 300) == [90, *([0] * 199)]


def test_a_line_keeps_what_it_says() -> None:
    line = {"event": "refused", "status": 404}
    assert Limit()(None, "info", line) == {"event": "refused", "status": 404}


def test_the_service_writes_its_log_so(capsys: pytest.CaptureFixture[str]) -> None:
    import structlog

    with _configured():
        for number in range(500):
            structlog.get_logger().info("position not predicted with", number=number)
        assert len(capsys.readouterr().err.splitlines()) < 300


def test_lines_of_libraries_are_limited_too(capsys: pytest.CaptureFixture[str]) -> None:
    with _configured():
        for number in range(500):
            logging.getLogger("aiohttp.server").error("no HTTP from %s: 100 %%", number)
        logging.getLogger("aiohttp.server").error("another")
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["event"] == "no HTTP from 0: 100 %"
    assert lines[-1]["event"] == "another"
    assert len(lines) < 300


def test_the_next_line_of_a_library_says_how_many_are_missing() -> None:
    clock = iter([0.0] * 300 + [1.0])
    limited = OfLibraries(Limit(lambda: next(clock)))
    texts = []
    for _ in range(301):
        record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "from %s", ("a",), None)
        if limited.filter(record):
            texts.append(record.getMessage())
    assert texts == [*["from a"] * 200, "from a left_out=100"]


@contextmanager
def _configured() -> Iterator[None]:
    import structlog
    from underpass_control import logs

    root = logging.getLogger()
    before, of_structlog = (root.handlers[:], root.level), structlog.get_config()
    try:
        logs.configure(logs.Format.JSON)
        yield
    finally:
        # Not the defaults: other tests read what commands print, and services log meanwhile.
        structlog.configure(**of_structlog)
        root.handlers, root.level = before
