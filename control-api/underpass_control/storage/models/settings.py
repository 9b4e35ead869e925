"""Remote settings of terminals and gateways."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base


class _Settings:
    """The newest settings of a node, and its last report about settings."""

    # Rises with each change on any replica, so newer settings have a higher version.
    version: Mapped[int]
    # As in `docs/control-protocol.md`, without the node and the version.
    document: Mapped[dict[str, Any]]
    set_ms: Mapped[int]
    reported_version: Mapped[int | None]
    applied: Mapped[bool | None]
    # `trial`, `confirmed`, `rolled-back` or `refused`.
    reported_state: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(1000))
    reported_ms: Mapped[int | None]


class TerminalSettings(_Settings, Base):
    """The settings of a terminal."""

    __tablename__ = "terminal_settings"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )


class GatewaySettings(_Settings, Base):
    """The settings of a gateway itself, by its node number."""

    __tablename__ = "gateway_settings"

    gateway: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
