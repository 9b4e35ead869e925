"""Nodes that may be enrolled."""

from __future__ import annotations

from sqlalchemy import LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId


class Enrolment(Base):
    """Permission for one key to become a node; only its token's SHA-256 is stored."""

    __tablename__ = "enrolment"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    node: Mapped[int] = mapped_column(index=True)
    # The configuration that the node receives, as TOML.
    configuration: Mapped[str] = mapped_column(Text())
    created_ms: Mapped[int]
    # Pruned by age.
    expires_ms: Mapped[int] = mapped_column(index=True)
    revoked_ms: Mapped[int | None]
    # When it was first used, and the SHA-256 of the key that used it, in hexadecimal.
    used_ms: Mapped[int | None]
    key_sha256: Mapped[str | None] = mapped_column(String(64))
