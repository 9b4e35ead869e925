"""The API's models of users, sessions, tokens, tenants and the log of changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from underpass_control.access import passwords
from underpass_control.access.secrets import LONGEST_SECRET
from underpass_control.access.users import USER_NAME
from underpass_control.http.models import Instant, Model, Name, NodeNumber, Page, TenantId
from underpass_control.validation import worded

_TARGET = worded(r"^[^\x00-\x1f\x7f]*$", "have no control characters")
UserName = Annotated[
    str,
    Field(
        pattern=worded(
            f"^{USER_NAME.pattern}$",
            "have 1 to 64 of a-z, 0-9, ., _, @, + and -, and begin with one of a-z, 0-9",
        )
    ),
]
UserRole = Literal["viewer", "operator", "administrator"]
TokenRole = Literal["viewer", "operator", "administrator", "gateway", "terminal", "agent"]
# A new password; its length is checked again after normalisation.
NewPassword = Annotated[
    str,
    Field(
        min_length=passwords.SHORTEST,
        max_length=passwords.LONGEST,
        json_schema_extra={"format": "password"},
    ),
]
# A password to be verified: anything that a user types.
ShownPassword = Annotated[
    str, Field(max_length=passwords.LONGEST, json_schema_extra={"format": "password"})
]


class SignInBody(Model):
    """Who signs in."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    password: ShownPassword


class PasswordBody(Model):
    """A user's own password, as it is and as it is to be."""

    password: ShownPassword
    new_password: NewPassword


class Session(Model):
    """Who asks, and what for."""

    kind: Literal["token", "user"]
    name: str
    role: TokenRole
    tenant: TenantId | None = None
    node: NodeNumber | None = None
    expires: Instant | None = None
    # For a user who signs in by a provider: that provider.
    issuer: str | None = None
    # For a user: the value of `X-CSRF-Token` in each request that changes something.
    csrf_token: str | None = None


class Ended(Model):
    """How many sessions have ended."""

    ended: int


class UserBody(Model):
    """A user, as an administrator sets it. Without a tenant, of the whole system."""

    role: UserRole
    tenant: TenantId | None = None
    # Needed for a new user; without it, the password stays.
    password: NewPassword | None = None


class User(Model):
    """A user."""

    name: UserName
    role: UserRole
    tenant: TenantId | None = None
    created: Instant
    # The provider that the user signs in by; without it, by password.
    issuer: str | None = None
    # The value, in quotes, for `If-Match`, by which only this state is changed or removed.
    revision: int


class UserList(Model):
    """A page of users."""

    users: list[User]
    next: str | None = None


class TokenBody(Model):
    """A token to be made. Without a tenant, of the whole system."""

    name: Name
    role: TokenRole
    tenant: TenantId | None = None
    # The node number of a gateway or terminal; required for a terminal's token.
    node: NodeNumber | None = None
    # Without it, the token is valid until revoked.
    expires: Instant | None = None


class Token(TokenBody):
    """A token, without what has to be shown."""

    id: int
    created: Instant
    revoked: Instant | None = None


class NewToken(Token):
    """A token that has just been made: it is not shown again."""

    token: Annotated[str, Field(max_length=LONGEST_SECRET)]


class TokenList(Model):
    """A page of tokens."""

    tokens: list[Token]
    next: str | None = None


class TenantBody(Model):
    """A tenant, as it is set."""

    name: Name


class Tenant(TenantBody):
    """A tenant."""

    id: TenantId


class TenantList(Model):
    """A page of tenants."""

    tenants: list[Tenant]
    next: str | None = None


class AuditQuery(Page):
    """Which changes: in a time, by somebody, of what the path of an endpoint begins with."""

    since: Instant | None = None
    until: Instant | None = None
    actor: Name | None = None
    target: Annotated[str, Field(max_length=200, pattern=_TARGET)] | None = None


class AuditEntry(Model):
    """A change."""

    id: int
    time: Instant
    actor_kind: Literal["token", "user", "command line", "enrolment", "node", "rollout"]
    actor_id: int | None = None
    actor: str
    address: str
    tenant: TenantId | None = None
    action: str
    target: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class AuditPage(Model):
    """A page of changes, the newest first."""

    entries: list[AuditEntry]
    next: str | None = None
