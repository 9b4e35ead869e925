"""What callers cause does not fill the disk with lines of the log."""

from __future__ import annotations

import pytest
from structlog import DropEvent
from underpass_control.logs import Limit


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
    # Others are written all the same.
    assert written("planned", 1) == [0]
    now_s = 1.0
    assert written("refused", 100) == [800, *([0] * 9)]
    now_s = 3_600.0
    assert written("refused", 300) == [90, *([0] * 199)]


def test_a_line_keeps_what_it_says() -> None:
    line = {"event": "refused", "status": 404}
    assert Limit()(None, "info", line) == {"event": "refused", "status": 404}


def test_the_service_writes_its_log_so(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    import structlog
    from underpass_control import logs

    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.configure(logs.Format.JSON)
        for number in range(500):
            structlog.get_logger().info("position not predicted with", number=number)
        assert len(capsys.readouterr().err.splitlines()) < 300
    finally:
        structlog.reset_defaults()
        root.handlers, root.level = before[0], before[1]
