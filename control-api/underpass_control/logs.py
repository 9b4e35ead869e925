"""Structured logs, to standard error."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import structlog

# The lines of one event that are written at once, and per second: callers and nodes must not fill
# the disk.
_BURST = 200
_PER_S = 10.0


class Format(StrEnum):
    """How lines look."""

    CONSOLE = "console"
    JSON = "json"


class Limit:
    """A processor that leaves out lines of an event that come too often.

    The next written line of the event has their number in `left_out`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By event, a constant of the program: the lines that may still be written, since when, and
        # how many were left out.
        self._events: dict[str, tuple[float, float, int]] = {}
        # Lines come from several threads.
        self._lock = threading.Lock()

    def __call__(
        self, _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Return the line, or raise `DropEvent`."""
        from structlog import DropEvent

        missing = self.admit(str(event["event"]))
        if missing is None:
            raise DropEvent
        return {**event, "left_out": missing} if missing else event

    def admit(self, name: str) -> int | None:
        """Count a line; return how many were left out before it, or None to leave it out, too."""
        now_s = self._clock()
        with self._lock:
            left, at_s, missing = self._events.get(name, (float(_BURST), now_s, 0))
            left = min(left + (now_s - at_s) * _PER_S, float(_BURST))
            is_written = left >= 1.0
            kept = (left - 1.0, now_s, 0) if is_written else (left, now_s, missing + 1)
            self._events[name] = kept
        return missing if is_written else None


class OfLibraries(logging.Filter):
    """Limits the lines of libraries in the same way: one place of their code is one event.

    Otherwise a client that sends invalid HTTP would cause a traceback for each request.
    """

    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limit = limit

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is written."""
        if isinstance(record.msg, dict):
            # The service's own line, which has been counted.
            return True
        missing = self._limit.admit(f"{record.pathname}:{record.lineno}")
        if missing:
            record.msg = f"{record.msg} left_out={missing}"
        return missing is not None


def configure(form: Format) -> None:
    """Write all logs, the libraries' too, in one form.

    Tracebacks do not show the values of variables, which could be tokens.
    """
    # Imported here, since `--help` needs no logs.
    import structlog

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form is Format.JSON:
        last: list[structlog.typing.Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        plain = structlog.dev.plain_traceback
        last = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        ]
    limit = Limit()
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OfLibraries(limit))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # Alembic logs each look at the schema's revision, readiness checks included.
    logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
    structlog.configure(
        processors=[limit, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
