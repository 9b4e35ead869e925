"""Work that is done again and again as long as the service runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from underpass_control.storage.database import DatabaseLostError

_LOG = structlog.get_logger()


async def repeat(failed: str, every_s: float, work: Callable[[], Awaitable[object]]) -> NoReturn:
    """Do something now and every `every_s`, until cancelled; a failure is logged as `failed`.

    No caller waits for such a background task: if an error ended it, its work would silently stop.
    """
    while True:
        try:
            await work()
        except DatabaseLostError as error:
            _LOG.warning(failed, error=str(error))
        except Exception:
            _LOG.exception(failed)
        await asyncio.sleep(every_s)
