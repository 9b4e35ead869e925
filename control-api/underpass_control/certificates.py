"""Measures when the service's own certificates end, and warns of that in the log.

Nodes report their own certificates, which the rules of alerts check.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import structlog
from cryptography import x509

from underpass_control.instants import rfc3339
from underpass_control.repeating import repeat

if TYPE_CHECKING:
    from underpass_control.http.tls import ShownCertificate
    from underpass_control.metrics import Metrics
    from underpass_control.settings import Settings

_LOG = structlog.get_logger()
_LOOK_EVERY_S = 60.0
_WARN_EVERY_S = 86_400.0
# A certificate that has to be distributed to nodes needs more time than one replaced in one place.
_AUTHORITY = "authority"
_WARN_FROM_S = 21 * 86_400.0
_WARN_OF_AUTHORITY_FROM_S = 90 * 86_400.0


def ends_of(pem: bytes) -> list[float]:
    """Return when each certificate in a PEM file ends, in order, seconds since the Unix epoch.

    Raises:
        ValueError: There is none, or one is malformed.
    """
    return [one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(pem)]


def shown_ends(certificate: Path) -> dict[str, float]:
    """Return when the HTTPS certificate ends, and the first of its chain to end.

    Raises:
        OSError: The file cannot be read.
        ValueError: There is no certificate in it, or one is malformed.
    """
    own, *chain = ends_of(certificate.read_bytes())
    found = {"https": own}
    if chain:
        found["https-chain"] = min(chain)
    return found


class OwnCertificates:
    """Checks each minute when they end; `now_s` is the time since the Unix epoch."""

    def __init__(
        self,
        metrics: Metrics,
        settings: Settings,
        shown: ShownCertificate | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Take the HTTPS certificate, and the files of the authority that enrols nodes."""
        self._metric = metrics.certificate_expiry
        self._shown = shown
        self._files: dict[str, Path] = {}
        if settings.authority is not None:
            self._files[_AUTHORITY] = settings.authority / "ca.crt"
            if settings.enrolment_certificate is not None:
                self._files["enrolment"] = settings.enrolment_certificate
        self._now_s = now_s
        # The ends in each file when it could last be read.
        self._known: dict[str, float] = {}
        self._unreadable: set[str] = set()
        self._warned_s: dict[str, float] = {}

    async def watch_for_ever(self) -> NoReturn:
        """Look now and repeatedly, until cancelled."""
        await repeat("the service's own certificates are not looked at", _LOOK_EVERY_S, self.look)

    async def look(self) -> None:
        """Measure when each ends, and warn once a day of those that end soon."""
        for name, path in self._files.items():
            await self._read(name, path)
        ends = self._known | ({} if self._shown is None else self._shown.ends)
        # A certificate that is gone, such as a chain that was left out, has no end.
        self._metric.clear()
        for name, end_s in ends.items():
            self._metric.labels(name).set(end_s)
            self._warn(name, end_s)

    async def _read(self, name: str, path: Path) -> None:
        try:
            # A node uses the first.
            self._known[name] = ends_of(await asyncio.to_thread(path.read_bytes))[0]
        except (OSError, ValueError) as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                _LOG.warning("a certificate cannot be read", file=str(path), error=str(error))
            return
        self._unreadable.discard(name)

    def _warn(self, name: str, end_s: float) -> None:
        now_s = self._now_s()
        from_s = _WARN_OF_AUTHORITY_FROM_S if name == _AUTHORITY else _WARN_FROM_S
        if end_s - now_s >= from_s:
            self._warned_s.pop(name, None)
        elif abs(now_s - self._warned_s.get(name, -_WARN_EVERY_S)) >= _WARN_EVERY_S:
            self._warned_s[name] = now_s
            message = (
                "a certificate of the service has ended"
                if end_s <= now_s
                else "a certificate of the service ends soon"
            )
            end = rfc3339(datetime.fromtimestamp(end_s, UTC))
            _LOG.warning(message, certificate=name, end=end)
