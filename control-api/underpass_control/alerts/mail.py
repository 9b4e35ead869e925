"""Sends messages of alerts by e-mail, through the operator's own mail server."""

from __future__ import annotations

import json
import re
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

_WITHIN_S = 10.0
# The common form of an address (RFC 5321 § 4.1.2, a dot-string at a domain): no quoted ones, and
# nothing that could be another header or recipient.
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")
_PORTS = {"smtp": 25, "smtps": 465}


class MailError(Exception):
    """A mail cannot be sent; the text says why."""


@dataclass(frozen=True)
class MailServer:
    """The server that takes mails, and their sender.

    Attributes:
        host: of the server.
        port: of it.
        is_tls: whether TLS is used from the first byte; otherwise once the server offers STARTTLS.
        sender: the address of the sender.
        user: the user who signs in; empty: no sign-in.
        password: of the user. It is sent over TLS only.
    """

    host: str
    port: int
    is_tls: bool
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)


def mail_server_of(url: str, sender: str) -> MailServer:
    """Return the server of an URL: `smtp://HOST`, `smtps://USER:PASSWORD@HOST:PORT`.

    Raises:
        ValueError: It is malformed, or the sender is no address.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        raise ValueError("a mail server is smtp://HOST:PORT or smtps://USER:PASSWORD@HOST:PORT")
    return MailServer(
        parts.hostname,
        parts.port or _PORTS[parts.scheme],
        parts.scheme == "smtps",
        mail_address(sender),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )


def mail_address(text: str) -> str:
    """Return an address, also one that is written as `mailto:`.

    Raises:
        ValueError: It is none.
    """
    address = text.removeprefix("mailto:")
    # The start of an encoded word (RFC 2047) would become another address in the header.
    if _ADDRESS.fullmatch(address) is None or "=?" in address:
        raise ValueError(f"{address!r} is no address of the form name@example.com")
    return address


def mail_of(server: MailServer, recipient: str, number: int, body: str) -> EmailMessage:
    """Return a message of alerts as a mail; `body` is what `messages.mail_body` gives."""
    told = json.loads(body)
    news, more = told["news"], told["more"]
    count = f"{len(news) + more} alerts: " if len(news) + more > 1 else ""
    first = news[0]
    subjects = [one.get("alert") or one["rollout"] for one in news]
    mail = EmailMessage()
    mail["From"], mail["To"] = server.sender, recipient
    # A header must have no line breaks, and this text has none of its own.
    subject = f"Underpass: {count}{first['event']}: {subjects[0]['text']}"
    mail["Subject"] = " ".join(subject.split())[:200]
    mail["Date"] = formatdate(usegmt=True)
    # The same at each try, so that a repeated mail can be recognised.
    mail["Message-ID"] = f"<alert-message-{number}@{server.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    lines: list[str] = []
    for one, subject_of in zip(news, subjects, strict=True):
        lines.append(f"event: {one['event']}")
        # Some values come from terminals: only the lines made here may begin with a name.
        values = ((name, " ".join(str(value).split())) for name, value in subject_of.items())
        lines += [f"{name}: {value}" for name, value in values]
        lines.append("")
    if more:
        lines += [f"and {more} more: the console and GET /v1/alerts have them", ""]
    mail.set_content("\n".join(lines))
    return mail


def send(server: MailServer, mail: EmailMessage) -> None:
    """Send a mail to the server; blocks for a few seconds per step at most.

    Raises:
        MailError: The server cannot be reached, or refuses the mail.
    """
    context = ssl.create_default_context()
    try:
        client = (
            smtplib.SMTP_SSL(server.host, server.port, timeout=_WITHIN_S, context=context)
            if server.is_tls
            else smtplib.SMTP(server.host, server.port, timeout=_WITHIN_S)
        )
        with client:
            client.ehlo()
            if not server.is_tls and client.has_extn("starttls"):
                client.starttls(context=context)
                client.ehlo()
            elif server.user and not server.is_tls:
                raise MailError("the mail server offers no TLS: the password is not sent")
            if server.user:
                client.login(server.user, server.password)
            client.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise MailError(str(error) or type(error).__name__) from error
