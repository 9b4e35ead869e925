"""Nodes that may be enrolled."""

from __future__ import annotations

from sqlalchemy import LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId


class Enrolment(Base):
    """Leave for one key to become a node; of its token only the SHA-256 is kept."""

    __tablename__ = "enrolment"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    node: Mapped[int] = mapped_column(index=True)
    # What the node is given, TOML.
    configuration: Mapped[str] = mapped_column(Text())
    created_ms: Mapped[int]
    # Pruned by age.
    expires_ms: Mapped[int] = mapped_column(index=True)
    revoked_ms: Mapped[int | None]
    # When it was used first, and the SHA-256 of the key, hexadecimal.
    used_ms: Mapped[int | None]
    key_sha256: Mapped[str | None] = mapped_column(String(64))
