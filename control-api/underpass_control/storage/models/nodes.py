"""Nodes' reports about themselves."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base


class NodeReport(Base):
    """A node's last report about itself."""

    __tablename__ = "node_report"

    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # `terminal` or `gateway`: a number may be both, each with a row of its own.
    role: Mapped[str] = mapped_column(String(8), primary_key=True)
    # The node, if it is a terminal: deleting the terminal deletes the row.
    terminal: Mapped[int | None] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), index=True
    )
    version: Mapped[str] = mapped_column(String(64))
    # None: the node has no certificate.
    certificate_end_ms: Mapped[int | None]
    # The time of the report.
    time_ms: Mapped[int]
