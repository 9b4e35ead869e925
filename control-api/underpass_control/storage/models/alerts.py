"""Alerts: their rules, the alerts that fired, the targets, and the messages still to be sent."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy import text as sql
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId

_AUTO = {"sqlite_autoincrement": True}


class AlertRule(Base):
    """A rule that an operator has set."""

    __tablename__ = "alert_rule"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    # A value of `underpass_control.alerts.rules.RuleKind`.
    kind: Mapped[str] = mapped_column(String(16))
    # 0 for a kind without a limit.
    limit_ms: Mapped[int]
    # How long its condition has to hold before an alert fires, and how long it has to be absent
    # before the alert is resolved.
    for_ms: Mapped[int] = mapped_column(default=0, server_default="0")
    keep_firing_for_ms: Mapped[int] = mapped_column(default=0, server_default="60000")
    # For a rule about software: the version that terminals should run.
    version: Mapped[str | None] = mapped_column(String(64))
    # None: the rule is for all beams.
    beam_id: Mapped[str | None] = mapped_column(ForeignKey("beam.id", ondelete="CASCADE"))
    revision: Mapped[int] = mapped_column(default=1)

    __table_args__ = (_AUTO,)


class Alert(Base):
    """A problem that a terminal has or had, according to a rule."""

    __tablename__ = "alert"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    rule_id: Mapped[int | None] = mapped_column(
        RowId, ForeignKey("alert_rule.id", ondelete="SET NULL")
    )
    # The rule's name and kind when the alert fired.
    rule: Mapped[str] = mapped_column(String(200))
    kind: Mapped[str] = mapped_column(String(16))
    terminal: Mapped[int] = mapped_column(ForeignKey("terminal.node", ondelete="CASCADE"))
    # Empty if the alert concerns no link.
    link: Mapped[str] = mapped_column(String(8))
    text: Mapped[str] = mapped_column(String(300))
    since_ms: Mapped[int]
    # Since when its rule's condition no longer holds; None while it does.
    gone_ms: Mapped[int | None]
    resolved_ms: Mapped[int | None]
    acknowledged_by: Mapped[str | None] = mapped_column(String(200))
    acknowledged_ms: Mapped[int | None]

    __table_args__ = (
        # Only one alert per rule, terminal and link fires at a time, however many processes look.
        Index(
            "ix_alert_firing",
            "rule_id",
            "terminal",
            "link",
            unique=True,
            postgresql_where=sql("resolved_ms IS NULL"),
            sqlite_where=sql("resolved_ms IS NULL"),
        ),
        Index("ix_alert_terminal", "terminal"),
        Index("ix_alert_resolved_ms", "resolved_ms"),
        _AUTO,
    )


class AlertPending(Base):
    """A rule's condition that holds, but not yet for long enough to fire."""

    __tablename__ = "alert_pending"

    rule_id: Mapped[int] = mapped_column(
        RowId, ForeignKey("alert_rule.id", ondelete="CASCADE"), primary_key=True
    )
    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, index=True
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    since_ms: Mapped[int]


class AlertTarget(Base):
    """A receiver of alerts: a webhook's URL, or a mail address as a `mailto:` URL."""

    __tablename__ = "alert_target"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    url: Mapped[str] = mapped_column(Text())
    # The key that signs messages. It is shown only once, when the target is made.
    secret: Mapped[str] = mapped_column(String(64))
    # When the last message was tried, and why it failed; None: none was tried, or none failed.
    last_ms: Mapped[int | None]
    last_failure: Mapped[str | None] = mapped_column(String(200))
    # How many messages in a row have failed.
    failures: Mapped[int] = mapped_column(default=0, server_default="0")

    __table_args__ = (_AUTO,)


class AlertMessage(Base):
    """A message about an alert that a target has not received yet."""

    __tablename__ = "alert_message"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    target_id: Mapped[int] = mapped_column(
        RowId, ForeignKey("alert_target.id", ondelete="CASCADE"), index=True
    )
    # Each attempt sends the same body.
    body: Mapped[str] = mapped_column(Text())
    made_ms: Mapped[int]
    tries: Mapped[int] = mapped_column(default=0)
    # It is sent no earlier than this. The time is put off while a process sends the message, and
    # while its target fails.
    next_ms: Mapped[int] = mapped_column(index=True)

    __table_args__ = (_AUTO,)
