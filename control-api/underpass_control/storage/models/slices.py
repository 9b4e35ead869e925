"""Slices of functions: their desired state, and the state that their site reports."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base


class Slice(Base):
    """A chain of functions of a tenant (`docs/functions.md`)."""

    __tablename__ = "slice"

    name: Mapped[str] = mapped_column(String(31), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(
        String(64), ForeignKey("tenant.id", ondelete="RESTRICT"), index=True
    )
    site: Mapped[str] = mapped_column(String(31), index=True)
    # The number of its block of addresses.
    number: Mapped[int] = mapped_column(unique=True)
    # Rises with each change, even if the slice is deleted and made again by the same name.
    revision: Mapped[int]
    body: Mapped[dict[str, Any]]
    set_ms: Mapped[int]
    # It is being terminated; the row is deleted once the site reports that nothing is left of it.
    ending: Mapped[bool] = mapped_column(default=False)
    reported_revision: Mapped[int | None]
    reported_ms: Mapped[int | None]
    # `running` or `failed`.
    reported: Mapped[str | None] = mapped_column(String(16))
    detail: Mapped[str | None] = mapped_column(String(1000))
    # The containers, each with its state and health.
    containers: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
