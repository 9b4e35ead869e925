"""Sends messages of alerts: signed to webhooks, or by mail; again after a failure, within bounds.

A message is in the database until it has been taken, so a restart loses none; one may come twice,
with the same number.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random

import structlog
from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, TCPConnector

from underpass_control.alerts.addresses import AddressError, CheckedResolver, Networks, check_url
from underpass_control.alerts.mail import MailError, MailServer, mail_address, mail_of, send
from underpass_control.metrics import Metrics
from underpass_control.storage import alerts
from underpass_control.storage.alerts import Message
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
_LOOK_EVERY_S = 1.0
_AT_ONCE = 8
# A target that answers more slowly has not taken the message.
_WITHIN_S = 10.0
# No other process sends what this one has begun to, for so long.
_CLAIMED_MS = 60_000
# After the first failure it is tried again after so long, then twice as long, and so on.
_FIRST_AGAIN_MS = 5_000
_LONGEST_AGAIN_MS = 3_600_000
# A message that is older is given up.
_OLDEST_MS = 86_400_000


class Sending:
    """Sends what waits to be sent."""

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        allowed: Networks,
        mail_server: MailServer | None = None,
    ) -> None:
        """Take the networks, not public, that webhooks may go to, and where mails are handed in."""
        self._mail_server = mail_server
        self._database = database
        self._metrics = metrics
        self._allowed = allowed

    async def send_for_ever(self) -> None:
        """Send what is due, until cancelled."""
        connector = TCPConnector(
            resolver=CheckedResolver(self._allowed), use_dns_cache=False, force_close=True
        )
        # `trust_env` is off: a proxy would connect where it likes.
        async with ClientSession(
            connector=connector, timeout=ClientTimeout(total=_WITHIN_S)
        ) as session:
            while True:
                try:
                    while await self.send_due(session):
                        pass
                except DatabaseLostError as error:
                    _LOG.warning("messages of alerts are not sent", error=str(error))
                await asyncio.sleep(_LOOK_EVERY_S)

    async def send_due(self, session: ClientSession) -> int:
        """Send some of what is due; return how many it was."""
        now_ms = self._database.clock.now_ms()
        async with self._database.transaction() as connection:
            due = await alerts.claim(
                connection, now_ms, until_ms=now_ms + _CLAIMED_MS, limit=_AT_ONCE
            )
        await asyncio.gather(*(self._send(session, message) for message in due))
        return len(due)

    async def _send(self, session: ClientSession, message: Message) -> None:
        by_mail = message.url.startswith("mailto:")
        failure = await (self._mail(message) if by_mail else self._post(session, message))
        now_ms = self._database.clock.now_ms()
        again_ms = None
        outcome = "sent"
        if failure is not None:
            again_ms = again_after(message, now_ms, random.random())
            outcome = "given up" if again_ms is None else "failed"
            _LOG.warning("a target of alerts has failed", target=message.target, error=failure)
        self._metrics.alert_messages.labels(outcome).inc()
        async with self._database.transaction() as connection:
            await alerts.sent(connection, message, now_ms, failure, again_ms)

    async def _mail(self, message: Message) -> str | None:
        """Return what has gone wrong, if anything."""
        server = self._mail_server
        if server is None:
            return "no mail server is set: --mail-server"
        try:
            mail = mail_of(server, mail_address(message.url), message.id, message.body)
            await asyncio.to_thread(send, server, mail)
        except (MailError, ValueError) as error:
            return str(error)
        return None

    async def _post(self, session: ClientSession, message: Message) -> str | None:
        """Return what has gone wrong, if anything."""
        body = message.body.encode()
        seconds = self._database.clock.now_ms() // 1000
        headers = {
            "Content-Type": "application/json",
            "Underpass-Message": str(message.id),
            "Underpass-Signature": signature(message.secret, seconds, body),
        }
        try:
            url = check_url(message.url, self._allowed)
            # What it answers is not read: it could be endless.
            async with session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status < 300:
                    return None
                return f"it answers {answer.status}"
        except TimeoutError:
            return f"it does not answer within {_WITHIN_S:.0f} s"
        except ClientConnectorError as error:
            # The client's own words leave out why an address was refused.
            return str(error.os_error) or type(error).__name__
        except (AddressError, ClientError, OSError, ValueError) as error:
            return str(error) or type(error).__name__


def signature(secret: str, seconds: int, body: bytes) -> str:
    """Return what a message is signed with: HMAC-SHA-256 (RFC 2104) of its time and body."""
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={signed.hexdigest()}"


def again_after(message: Message, now_ms: int, drawn: float) -> int | None:
    """Return when to try again after a failure; None: not any more.

    `drawn` is from 0 to 1: not all messages that a target has missed come back at once.
    """
    if now_ms - message.made_ms >= _OLDEST_MS:
        return None
    longest_ms = min(_FIRST_AGAIN_MS << min(message.tries - 1, 20), _LONGEST_AGAIN_MS)
    return now_ms + round(longest_ms * (0.5 + drawn / 2))
