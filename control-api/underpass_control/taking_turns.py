"""Long work in the event loop, in parts that do not delay other tasks."""

from __future__ import annotations

import asyncio
import time

# The longest that other tasks wait for one part. A request takes some twenty turns, most of them
# after a database query.
_PART_S = 0.002


class Turns:
    """Lets other tasks run after some time of work."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Let other tasks run, if it is time; call this after each small step."""
        if time.monotonic() - self._began > _PART_S:
            await asyncio.sleep(0)
            self._began = time.monotonic()
