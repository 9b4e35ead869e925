"""Passwords: hashed by Argon2id (RFC 9106), a few at a time, since each hash takes 64 MiB."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

SHORTEST, LONGEST = 12, 256
_AT_ONCE = 2
_MOST_WAITING = 16
# The second recommended choice of RFC 9106, § 4: 3 passes, 64 MiB, 4 lanes.
_HASHER = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=4)

T = TypeVar("T")


class PasswordError(ValueError):
    """The text cannot be a password; the message says why."""


class BusyError(RuntimeError):
    """Too many passwords wait to be hashed."""


class Passwords:
    """Hashes and verifies passwords, within bounds of memory and threads."""

    def __init__(self) -> None:
        self._working = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        # Verified for unknown names, so that they take as long as known ones.
        self._nobodys: str | None = None

    async def hash(self, password: str) -> str:
        """Return a password's hash.

        Raises:
            BusyError: Too many wait already.
            PasswordError: It is too short or too long.
        """
        text = checked(password)
        return await self._work(lambda: _HASHER.hash(text))

    async def is_right(self, password: str, hashed: str | None) -> bool:
        """Tell whether a password matches a hash; None matches nothing, but takes as long.

        Raises:
            BusyError: Too many wait already.
        """
        if self._nobodys is None:
            self._nobodys = await self._work(lambda: _HASHER.hash("nobody's password"))
        against = self._nobodys if hashed is None else hashed
        text = unicodedata.normalize("NFC", password)
        return await self._work(lambda: _verified(against, text)) and hashed is not None

    async def _work(self, work: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise BusyError("too many passwords are being verified: try again in some seconds")
        self._waiting += 1
        try:
            async with self._working:
                # A caller that no longer waits still has a thread and its memory until the end.
                return await asyncio.shield(asyncio.create_task(asyncio.to_thread(work)))
        finally:
            self._waiting -= 1


def checked(password: str) -> str:
    """Return a new password normalised for hashing: the same whichever keyboard has typed it.

    Raises:
        PasswordError: It is too short or too long.
    """
    text = unicodedata.normalize("NFC", password)
    if not SHORTEST <= len(text) <= LONGEST:
        raise PasswordError(f"a password has {SHORTEST} to {LONGEST} characters")
    return text


def hash_now(password: str) -> str:
    """Return a password's hash, for the command line.

    Raises:
        PasswordError: It is too short or too long.
    """
    return _HASHER.hash(checked(password))


def _verified(hashed: str, password: str) -> bool:
    try:
        return _HASHER.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False
