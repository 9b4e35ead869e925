"""Tenants, users, and the log of who changed what."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import FIRST, Base, RowId, first_revision


class Tenant(Base):
    """An owner of vehicles, users and tokens."""

    __tablename__ = "tenant"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))


class User(Base):
    """A person who signs in by name and password, or by an OpenID Connect provider."""

    __tablename__ = "user_account"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True, sort_order=FIRST)
    role: Mapped[str] = mapped_column(String(16))
    # None: for the whole system.
    tenant_id: Mapped[str | None] = mapped_column(
        String(64), ForeignKey("tenant.id", ondelete="RESTRICT")
    )
    # Argon2id with its parameters and salt (RFC 9106) as a PHC string; empty for a provider's user.
    password_hash: Mapped[str] = mapped_column(String(255))
    created_ms: Mapped[int]
    # The identity of a provider's user: a provider may reassign names, but never a subject.
    issuer: Mapped[str | None] = mapped_column(String(255))
    subject: Mapped[str | None] = mapped_column(String(255))
    # Rises with every change, for conditional requests.
    revision: Mapped[int] = mapped_column(default=first_revision, server_default="1")

    __table_args__ = (
        CheckConstraint("role IN ('viewer', 'operator', 'administrator')", "role"),
        Index("ix_user_account_subject", "issuer", "subject", unique=True),
        {"sqlite_autoincrement": True},
    )


class UserSession(Base):
    """A session of a signed-in user; only the SHA-256 of the cookie's secret is stored."""

    __tablename__ = "user_session"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    user_id: Mapped[int] = mapped_column(
        RowId, ForeignKey("user_account.id", ondelete="CASCADE"), index=True
    )
    created_ms: Mapped[int]
    expires_ms: Mapped[int]
    # The session ends then unless it is used before; never later than `expires_ms`.
    idle_until_ms: Mapped[int] = mapped_column(index=True)

    # Ids are never reused, so what is cached about an ended session never applies to another.
    __table_args__ = ({"sqlite_autoincrement": True},)


class AuditEntry(Base):
    """One change: who made it, from where, what it was, and the state before and after."""

    __tablename__ = "audit_entry"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    time_ms: Mapped[int] = mapped_column(index=True)
    # `token`, `user` or `command line`.
    actor_kind: Mapped[str] = mapped_column(String(16))
    actor_id: Mapped[int | None]
    actor: Mapped[str] = mapped_column(String(200))
    address: Mapped[str] = mapped_column(String(64))
    # The tenant that may see the change; kept when the tenant is deleted.
    tenant_id: Mapped[str | None] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(200))
    before: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    after: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    __table_args__ = (Index("ix_audit_entry_tenant_id", "tenant_id", "id"),)
