"""What nodes report of themselves."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base


class NodeReport(Base):
    """What a node has last said of itself."""

    __tablename__ = "node_report"

    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # `terminal` or `gateway`: a number may be both, and neither speaks for the other.
    role: Mapped[str] = mapped_column(String(8), primary_key=True)
    # The node, if it is a terminal: the row goes with it.
    terminal: Mapped[int | None] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), index=True
    )
    version: Mapped[str] = mapped_column(String(64))
    # None: it has no certificate.
    certificate_end_ms: Mapped[int | None]
    # When it said so.
    time_ms: Mapped[int]
