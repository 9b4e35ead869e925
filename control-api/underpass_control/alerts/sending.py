"""Sends messages of alerts: signed to webhooks, or by mail; again after a failure, within bounds.

A message stays in the database until its target has accepted it, so a restart loses none; it may
come twice, with the same number. Each target is served separately, one message after the other: a
target that is slow or away delays no other.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import random
from concurrent.futures import ThreadPoolExecutor

import structlog
from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, TCPConnector

from underpass_control.alerts.addresses import AddressError, CheckedResolver, Networks, check_url
from underpass_control.alerts.mail import MailError, MailServer, mail_address, mail_of, send
from underpass_control.metrics import Metrics
from underpass_control.pauses import again_after_ms
from underpass_control.repeating import repeat
from underpass_control.storage import alerts
from underpass_control.storage.alerts import Message
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
_LOOK_EVERY_S = 1.0
# Mails that are sent at once. They have their own threads: otherwise a mail server that hangs would
# block everything else that the service does in threads.
_MAILS_AT_ONCE = 4
# A target that answers more slowly counts as not having accepted the message.
_WITHIN_S = 10.0
# For this long, no other process sends a message that this one has begun to send.
_CLAIMED_MS = 60_000
# Older messages are given up.
OLDEST_S = 86_400.0
_NOT_SENT = "messages of alerts are not sent"


class Sending:
    """Sends the waiting messages."""

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        allowed: Networks,
        mail_server: MailServer | None = None,
    ) -> None:
        """Take the non-public networks that webhooks may go to, and the mail server."""
        self._mail_server = mail_server
        self._database = database
        self._metrics = metrics
        self._allowed = allowed
        self._mailing = ThreadPoolExecutor(_MAILS_AT_ONCE, thread_name_prefix="mail")
        # The targets to which messages are being sent.
        self._busy: set[int] = set()

    async def send_for_ever(self) -> None:
        """Send the messages that are due, until cancelled."""
        resolver = CheckedResolver(self._allowed)
        connector = TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
        # `trust_env` is off: a proxy could connect anywhere.
        timeout = ClientTimeout(total=_WITHIN_S)
        try:
            async with (
                ClientSession(connector=connector, timeout=timeout) as session,
                asyncio.TaskGroup() as group,
            ):
                await repeat(_NOT_SENT, _LOOK_EVERY_S, lambda: self._send_due(session, group))
        finally:
            self._mailing.shutdown(wait=False, cancel_futures=True)
            # A connector closes only a resolver that it has made itself.
            await resolver.close()

    async def _send_due(self, session: ClientSession, group: asyncio.TaskGroup) -> None:
        """Begin to send to all targets with a message due."""
        async with self._database.reading() as connection:
            due = await alerts.due(connection, self._database.clock.now_ms())
        for target in due - self._busy:
            self._busy.add(target)
            group.create_task(self._send_to(session, target))

    async def _send_to(self, session: ClientSession, target: int) -> None:
        """Send a target its due messages."""
        try:
            while await self._send_next(session, target):
                pass
        except DatabaseLostError as error:
            _LOG.warning(_NOT_SENT, target=target, error=str(error))
        except Exception:
            # Other targets continue. The message is sent again once its claim has expired.
            _LOG.exception(_NOT_SENT, target=target)
        finally:
            self._busy.discard(target)

    async def _send_next(self, session: ClientSession, target: int) -> bool:
        """Send a target its next message, if one is due; tell whether it accepted it."""
        now_ms = self._database.clock.now_ms()
        async with self._database.transaction() as connection:
            message = await alerts.claim(connection, target, now_ms, until_ms=now_ms + _CLAIMED_MS)
        if message is None:
            return False
        by_mail = message.url.startswith("mailto:")
        failure = await (self._mail(message) if by_mail else self._post(session, message))
        now_ms = self._database.clock.now_ms()
        self._metrics.alert_messages.labels("sent" if failure is None else "failed").inc()
        async with self._database.transaction() as connection:
            if failure is None:
                await alerts.taken(connection, message, now_ms)
            else:
                wait_ms = functools.partial(again_after_ms, drawn=random.random())
                await alerts.failed(connection, message, _printable(failure), now_ms, wait_ms)
        if failure is not None:
            _LOG.warning("a target of alerts has failed", target=target, error=failure)
        return failure is None

    async def _mail(self, message: Message) -> str | None:
        """Return what has gone wrong, if anything."""
        server = self._mail_server
        if server is None:
            return "no mail server is set: --mail-server"
        try:
            mail = mail_of(server, mail_address(message.url), message.id, message.body)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._mailing, send, server, mail)
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
            # The body of the answer is not read: it could be endless.
            async with session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status < 300:
                    return None
                return f"it answers {answer.status}"
        except TimeoutError:
            return f"it does not answer within {_WITHIN_S:.0f} s"
        except ClientConnectorError as error:
            # The client's error text does not say why an address was refused.
            return str(error.os_error) or type(error).__name__
        except (AddressError, ClientError, OSError, ValueError) as error:
            return str(error) or type(error).__name__


def signature(secret: str, seconds: int, body: bytes) -> str:
    """Return a message's signature: HMAC-SHA-256 (RFC 2104) of its time and body."""
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={signed.hexdigest()}"


def _printable(text: str) -> str:
    """Return a text from outside without characters that a database or page may not take."""
    return "".join(one if one.isprintable() else " " for one in text)
