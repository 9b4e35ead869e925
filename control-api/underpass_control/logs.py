"""Structured logs, to standard error."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum


class Format(StrEnum):
    """How lines look."""

    CONSOLE = "console"
    JSON = "json"


def configure(form: Format, level: int = logging.INFO) -> None:
    """Write all logs, the libraries' too, in one form.

    Tracebacks are without the values of variables: tokens would be among them.
    """
    # Those who only ask for help need no logs.
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Alembic tells of each look at the schema's revision, readiness checks included.
    logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
