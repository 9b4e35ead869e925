"""Mails of alerts: accepted by a real SMTP server, and safe from injected text."""

from __future__ import annotations

import asyncio
from email import message_from_bytes, policy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.alerts.mail import (
    MailError,
    MailServer,
    mail_address,
    mail_of,
    mail_server_of,
    send,
)
from underpass_control.alerts.messages import News, mail_body

ALERT = {"id": 5, "rule": "silent", "terminal": 11, "text": "nothing has come from terminal 11"}
BODY = mail_body([News("firing", ALERT)])


class SmtpServer:
    """The part of SMTP (RFC 5321) that a client needs to submit a mail, without TLS."""

    def __init__(self, refuses: str = "") -> None:
        self.recipients: list[str] = []
        self.mails: list[bytes] = []
        self.commands: list[str] = []
        self._refuses = refuses

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line.split(" ")[0].upper()
            self.commands.append(verb)
            if verb == self._refuses:
                writer.write(b"550 no\r\n")
            elif verb == "DATA":
                writer.write(b"354 go on\r\n")
                mail = await reader.readuntil(b"\r\n.\r\n")
                self.mails.append(mail.removesuffix(b".\r\n"))
                writer.write(b"250 taken\r\n")
            elif verb == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                if verb == "RCPT":
                    self.recipients.append(line)
                writer.write(b"250 ok\r\n")
        writer.close()


def hand_in(server: SmtpServer, user: str = "") -> None:
    """Send the alert's mail to a server."""

    async def run() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        where = MailServer("127.0.0.1", port, False, "from@example.com", user, "secret")
        try:
            await asyncio.to_thread(send, where, mail_of(where, "ops@example.com", 7, BODY))
        finally:
            listening.close()

    asyncio.run(run())


def test_a_mail_says_what_has_happened_and_which_message_it_is() -> None:
    server = SmtpServer()
    hand_in(server)
    assert [one.lower() for one in server.recipients] == ["rcpt to:<ops@example.com>"]
    (raw,) = server.mails
    mail = message_from_bytes(raw, policy=policy.default)
    assert mail["Subject"] == "Underpass: firing: nothing has come from terminal 11"
    assert mail["Message-ID"] == "<alert-message-7@example.com>"
    assert mail["From"] == "from@example.com"
    assert "terminal: 11" in mail.get_content()


def test_a_thousand_alerts_are_one_mail() -> None:
    news = [News("firing", {**ALERT, "id": number}) for number in range(1_000)]
    where = MailServer("127.0.0.1", 1, False, "from@example.com")
    mail = mail_of(where, "ops@example.com", 7, mail_body(news))
    assert mail["Subject"].startswith("Underpass: 1000 alerts: firing: nothing has come")
    text = mail.get_content()
    assert text.count("event: firing") == 100
    assert "and 900 more" in text


def test_a_password_is_not_shown_where_settings_are() -> None:
    assert "secret" not in repr(MailServer("h", 25, True, "a@b", "ada", "secret"))


def test_what_the_server_refuses_is_told() -> None:
    for verb in ("RCPT", "DATA", "MAIL"):
        with pytest.raises(MailError, match="no"):
            hand_in(SmtpServer(refuses=verb))


def test_a_password_is_not_sent_without_tls() -> None:
    server = SmtpServer()
    with pytest.raises(MailError, match="no TLS"):
        hand_in(server, user="ada")
    assert "AUTH" not in server.commands
    assert server.mails == []


def test_a_server_that_is_not_there_is_told() -> None:
    nowhere = MailServer("127.0.0.1", 1, False, "from@example.com")
    with pytest.raises(MailError):
        send(nowhere, mail_of(nowhere, "ops@example.com", 1, BODY))


@given(st.text(max_size=400))
def test_no_text_becomes_another_header_or_recipient(text: str) -> None:
    server = MailServer("127.0.0.1", 1, False, "from@example.com")
    body = mail_body([News("firing", {**ALERT, "text": text})])
    raw = mail_of(server, "ops@example.com", 1, body).as_bytes(policy=policy.SMTP)
    head = message_from_bytes(raw.split(b"\r\n\r\n")[0] + b"\r\n\r\n", policy=policy.default)
    assert {name.lower() for name in head} == {
        *("from", "to", "subject", "date", "message-id", "auto-submitted"),
        *("content-type", "content-transfer-encoding", "mime-version"),
    }
    assert head["To"] == "ops@example.com"


@pytest.mark.parametrize(
    "text",
    [
        *("ops", "mailto:", "mailto:a@b?cc=c@d", "a@b,c@d", "a b@c", "a@b\r\nBcc: c@d", "a@[::1]"),
        *("<a@b>", "a@b c@d", '"a b"@c', "@b", "a@", "=?utf-8?q?x=40c.d=2C?=@b"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        mail_address(text)


def test_a_mail_server_is_an_url() -> None:
    server = mail_server_of("smtps://ada:p%40ss@mail.example.com", "from@example.com")
    assert server == MailServer("mail.example.com", 465, True, "from@example.com", "ada", "p@ss")
    assert mail_server_of("smtp://mail.example.com:2525", "a@b").port == 2525
    refused: list[tuple[str, str]] = [
        *(("https://example.com", "a@b"), ("smtp://", "a@b"), ("smtp://host/path", "a@b")),
        *(("smtp://host", ""), ("smtp://host:99999", "a@b")),
    ]
    for url, sender in refused:
        with pytest.raises(ValueError, match=r".+"):
            mail_server_of(url, sender)


def test_a_stopped_rollout_is_mailed_and_what_a_terminal_has_said_makes_no_line() -> None:
    reason = "terminal 11: the hub was not heard\nevent: resolved"
    about = {"id": 3, "reason": reason, "text": f"rollout 3 (lte) has stopped: {reason}"}
    server = mail_server_of("smtp://mail.example.com", "from@example.com")
    mail = mail_of(server, "ops@example.com", 7, mail_body([News("stopped", about, "rollout")]))
    assert mail["Subject"].startswith("Underpass: stopped: rollout 3 (lte) has stopped: terminal")
    lines = mail.get_content().splitlines()
    assert [line for line in lines if line.startswith("event:")] == ["event: stopped"]
