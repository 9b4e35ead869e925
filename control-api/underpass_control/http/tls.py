"""The certificate that the service presents, read again when its files change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from underpass_control.certificates import shown_ends
from underpass_control.repeating import repeat

if TYPE_CHECKING:
    from aiohttp import web

_LOG = structlog.get_logger()
_LOOK_EVERY_S = 60.0
_NOT_TAKEN_UP = "the certificate of HTTPS has changed and is not taken up"
_NO_ENDS = "when the certificate of HTTPS ends cannot be read"


class ShownCertificate:
    """A certificate with its chain and its key, in files that are replaced before it ends.

    Attributes:
        context: presents it to new connections.
        ends: when it and the first of its chain end, in seconds since the Unix epoch.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read it.

        Raises:
            OSError: The files cannot be read, or do not belong together.
        """
        self._certificate, self._key = certificate, key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._taken = self._state()
        self.context.load_cert_chain(certificate, key)
        self.ends = self._read_ends()

    async def following(self, _: web.Application) -> AsyncIterator[None]:
        """Follow changes of the files while an application runs."""
        task = asyncio.create_task(repeat(_NOT_TAKEN_UP, _LOOK_EVERY_S, self.look))
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def look(self) -> None:
        """Read the files again if they have changed; otherwise the former certificate stays."""
        try:
            state = self._state()
            if state == self._taken:
                return
            # Try a separate context first: of a mismatched pair, a context would keep one file.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            _LOG.warning(_NOT_TAKEN_UP, file=str(self._certificate), error=str(error))
            return
        self._taken = state
        self.ends = self._read_ends()
        _LOG.info("the certificate of HTTPS is taken up again", file=str(self._certificate))

    def _read_ends(self) -> dict[str, float]:
        try:
            return shown_ends(self._certificate)
        except (OSError, ValueError) as error:
            # The new certificate is presented all the same.
            _LOG.warning(_NO_ENDS, file=str(self._certificate), error=str(error))
            return {}

    def _state(self) -> list[tuple[int, int, int]]:
        files = (self._certificate.stat(), self._key.stat())
        return [(file.st_ino, file.st_mtime_ns, file.st_ctime_ns) for file in files]
