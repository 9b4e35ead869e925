"""What is set of terminals and gateways from afar."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base


class _Settings:
    """The newest settings of a node, and what it has said of settings last."""

    # It rises with each change, of all replicas: what is newer has a higher one.
    version: Mapped[int]
    # As `docs/control-protocol.md` has it, without what names the node and the version.
    document: Mapped[dict[str, Any]]
    set_ms: Mapped[int]
    reported_version: Mapped[int | None]
    applied: Mapped[bool | None]
    # `trial`, `confirmed`, `rolled-back` or `refused`.
    reported_state: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(1000))
    reported_ms: Mapped[int | None]


class TerminalSettings(_Settings, Base):
    """Those of a terminal."""

    __tablename__ = "terminal_settings"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )


class GatewaySettings(_Settings, Base):
    """Those of a gateway itself, by its node number."""

    __tablename__ = "gateway_settings"

    gateway: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
