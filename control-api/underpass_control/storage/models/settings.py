"""What is set of terminals from afar."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base


class TerminalSettings(Base):
    """The newest settings of a terminal, and what it has said of settings last."""

    __tablename__ = "terminal_settings"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # It rises with each change, of all replicas: what is newer has a higher one.
    version: Mapped[int]
    # `class` and `path`, as `docs/control-protocol.md` has them.
    document: Mapped[dict[str, Any]]
    set_ms: Mapped[int]
    reported_version: Mapped[int | None]
    applied: Mapped[bool | None]
    # `trial`, `confirmed`, `rolled-back` or `refused`.
    reported_state: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(1000))
    reported_ms: Mapped[int | None]
