"""The bearer tokens by which programs call the service."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId


class Token(Base):
    """A bearer token; only its SHA-256 is stored, which suffices for 256 random bits."""

    __tablename__ = "token"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    # The node, for a terminal's or gateway's token.
    node: Mapped[int | None]
    # None: for the whole system.
    tenant_id: Mapped[str | None] = mapped_column(
        String(64), ForeignKey("tenant.id", ondelete="RESTRICT")
    )
    created_ms: Mapped[int]
    expires_ms: Mapped[int | None]
    revoked_ms: Mapped[int | None]

    __table_args__ = (
        CheckConstraint(
            "role IN ('viewer', 'operator', 'gateway', 'terminal', 'administrator', 'agent')",
            "role",
        ),
        CheckConstraint("role <> 'terminal' OR node IS NOT NULL", "terminal_node"),
    )
