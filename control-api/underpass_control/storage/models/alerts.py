"""Alerts: rules, what fires by them, who is told, and what is still to be told."""

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
    # As `underpass_control.alerts.rules.RuleKind` has them.
    kind: Mapped[str] = mapped_column(String(16))
    # 0 for a kind without a limit.
    limit_ms: Mapped[int]
    # For how long its condition has to hold before it fires, and to be gone before what fires is
    # resolved.
    for_ms: Mapped[int] = mapped_column(default=0, server_default="0")
    keep_firing_for_ms: Mapped[int] = mapped_column(default=0, server_default="60000")
    # The software that terminals are to run, for a rule about that.
    version: Mapped[str | None] = mapped_column(String(64))
    # None: for all beams.
    beam_id: Mapped[str | None] = mapped_column(ForeignKey("beam.id", ondelete="CASCADE"))
    revision: Mapped[int] = mapped_column(default=1)

    __table_args__ = (_AUTO,)


class Alert(Base):
    """Something that is or was wrong with a terminal by a rule."""

    __tablename__ = "alert"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    rule_id: Mapped[int | None] = mapped_column(
        RowId, ForeignKey("alert_rule.id", ondelete="SET NULL")
    )
    # As the rule was when it fired.
    rule: Mapped[str] = mapped_column(String(200))
    kind: Mapped[str] = mapped_column(String(16))
    terminal: Mapped[int] = mapped_column(ForeignKey("terminal.node", ondelete="CASCADE"))
    # Empty where it is about no link.
    link: Mapped[str] = mapped_column(String(8))
    text: Mapped[str] = mapped_column(String(300))
    since_ms: Mapped[int]
    # Since when the condition of its rule does not hold any more; None while it does.
    gone_ms: Mapped[int | None]
    resolved_ms: Mapped[int | None]
    acknowledged_by: Mapped[str | None] = mapped_column(String(200))
    acknowledged_ms: Mapped[int | None]

    __table_args__ = (
        # One of a kind fires at a time, however many processes look.
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
    """A rule's condition that holds, though not yet for as long as it has to before it fires."""

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
    """Who is told of alerts: a webhook, or an address of mail as `mailto:`."""

    __tablename__ = "alert_target"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    url: Mapped[str] = mapped_column(Text())
    # What messages are signed with. It is shown once, when it is made.
    secret: Mapped[str] = mapped_column(String(64))
    # How the last message went; None: none has been sent.
    last_ms: Mapped[int | None]
    last_failure: Mapped[str | None] = mapped_column(String(200))
    # How many messages in a row it has not taken.
    failures: Mapped[int] = mapped_column(default=0, server_default="0")

    __table_args__ = (_AUTO,)


class AlertMessage(Base):
    """What a target is still to be told of an alert."""

    __tablename__ = "alert_message"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    target_id: Mapped[int] = mapped_column(
        RowId, ForeignKey("alert_target.id", ondelete="CASCADE"), index=True
    )
    # The body, the same for each try.
    body: Mapped[str] = mapped_column(Text())
    made_ms: Mapped[int]
    tries: Mapped[int] = mapped_column(default=0)
    # Not before this time; it is put off while a process sends it, and while its target is away.
    next_ms: Mapped[int] = mapped_column(index=True)

    __table_args__ = (_AUTO,)
