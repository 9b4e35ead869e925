"""Long work in the event loop, in parts that hold nobody up."""

from __future__ import annotations

import asyncio
import time

# So long others wait at most for one part. A request has some twenty turns, most of them after a
# word with the database.
_PART_S = 0.002


class Turns:
    """Lets other tasks have their turn once work has gone on for a while."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Let them, if it is time; to be called after each small step."""
        if time.monotonic() - self._began > _PART_S:
            await asyncio.sleep(0)
            self._began = time.monotonic()
