"""A caller: the holder of a token, or a user who has signed in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from underpass_control.roles import Role

REPORTING_FOR_ALL = frozenset({Role.GATEWAY, Role.OPERATOR, Role.ADMINISTRATOR})


class Kind(StrEnum):
    """How a caller is authenticated."""

    TOKEN = "token"  # noqa: S105 - a kind, not a secret
    # A session of a user.
    USER = "user"


@dataclass(frozen=True)
class Credential:
    """A token, or a session, by its number."""

    kind: Kind
    id: int


@dataclass(frozen=True)
class Caller:
    """The holder of a token, or a user who has signed in."""

    credential: Credential
    name: str
    role: Role
    # The node that a gateway's or terminal's token is for.
    node: int | None
    # The tenant whose vehicles it sees; None: those of the whole system.
    tenant: str | None
    expires_ms: int | None
    # The user whose session it is.
    user_id: int | None = None
    # The provider that the user signs in by, if not by password.
    issuer: str | None = None

    def may_report_for(self, terminal: int) -> bool:
        """Tell whether its role may report for a terminal; gateways and operators may for all."""
        if self.role is Role.TERMINAL:
            return self.node == terminal
        return self.role in REPORTING_FOR_ALL

    def may_read(self, terminal: int) -> bool:
        """Tell whether its role lets it see a terminal's data: a terminal sees its own only."""
        return self.role is not Role.TERMINAL or self.node == terminal
