"""A document that the provider publishes: requested when needed, and cached for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_KNOWN_FOR_S = 3_600.0
# The least time between two requests for it, however often browsers ask.
_AGAIN_AFTER_S = 10.0

T = TypeVar("T")


class ProviderError(RuntimeError):
    """The provider cannot be reached, or gives an unusable answer; the text says why."""


class Document(Generic[T]):
    """A document; an old one is better than none while the provider is away."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        """Take what asks for it, which raises `ProviderError`."""
        self._ask = ask
        self._value: T | None = None
        self._failure = ""
        self._asked_s = self._due_s = float("-inf")
        self._asking = asyncio.Lock()

    async def get(self) -> T:
        """Return it.

        Raises:
            ProviderError: It is not known, and cannot be asked for.
        """
        async with self._asking:
            if time.monotonic() >= self._due_s:
                await self._renew()
        if self._value is None:
            raise ProviderError(self._failure)
        return self._value

    async def newer(self) -> T:
        """Return it as it is now, unless it has just been asked for.

        Raises:
            ProviderError: It is not known, and cannot be asked for.
        """
        if time.monotonic() - self._asked_s >= _AGAIN_AFTER_S:
            self._due_s = float("-inf")
        return await self.get()

    async def _renew(self) -> None:
        self._asked_s = time.monotonic()
        self._due_s = self._asked_s + _AGAIN_AFTER_S
        try:
            self._value = await self._ask()
        except ProviderError as error:
            self._failure = str(error)
        else:
            self._due_s = self._asked_s + _KNOWN_FOR_S
