"""Rollouts, and the progress of each of their terminals."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy import text as sql
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId


class Rollout(Base):
    """A change of settings for many terminals."""

    __tablename__ = "rollout"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    # The tenant that it belongs to; None: the whole system.
    tenant_id: Mapped[str | None] = mapped_column(
        String(64), ForeignKey("tenant.id", ondelete="CASCADE")
    )
    # `class` and `path`, as in `docs/control-protocol.md`.
    document: Mapped[dict[str, Any]]
    # Whether the document replaces each terminal's settings; otherwise it is merged into them.
    whole: Mapped[bool]
    # How many terminals each stage has, without the last stage.
    sizes: Mapped[list[int]]
    hold_ms: Mapped[int]
    wait_ms: Mapped[int]
    most_failures: Mapped[int]
    # A value of `underpass_control.rollouts.stages.State`.
    state: Mapped[str] = mapped_column(String(16))
    # The number of the present stage, from 0.
    stage: Mapped[int] = mapped_column(default=0)
    # Why it has stopped.
    reason: Mapped[str | None] = mapped_column(Text())
    created_by: Mapped[str] = mapped_column(String(200))
    created_ms: Mapped[int]
    changed_ms: Mapped[int]
    # Rises with each change of the state, for conditional requests.
    revision: Mapped[int] = mapped_column(default=1)

    __table_args__ = (
        Index("ix_rollout_tenant_id", "tenant_id"),
        Index("ix_rollout_changed_ms", "changed_ms"),
        {"sqlite_autoincrement": True},
    )


class RolloutTerminal(Base):
    """A terminal of a rollout."""

    __tablename__ = "rollout_terminal"

    rollout_id: Mapped[int] = mapped_column(
        RowId, ForeignKey("rollout.id", ondelete="CASCADE"), primary_key=True
    )
    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    # Its place in the order in which the terminals are tried.
    place: Mapped[int]
    # A value of `underpass_control.rollouts.stages.Progress`.
    progress: Mapped[str] = mapped_column(String(16))
    # The stage in which it was set.
    stage: Mapped[int | None]
    # The version of the settings that the rollout set, and the settings before it, None if there
    # were none.
    version: Mapped[int | None]
    before: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    sent_ms: Mapped[int | None]
    confirmed_ms: Mapped[int | None]
    reason: Mapped[str | None] = mapped_column(String(1000))
    # True until the rollout has ended.
    is_open: Mapped[bool]

    __table_args__ = (
        # At most one rollout works on a terminal, however many are made at the same time.
        Index(
            "ix_rollout_terminal_open",
            "terminal",
            unique=True,
            postgresql_where=sql("is_open"),
            sqlite_where=sql("is_open"),
        ),
    )
