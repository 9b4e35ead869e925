"""The roles of users and bearer tokens."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a user or a token is for."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    # An operator who also has users, tokens, tenants and the log of changes.
    ADMINISTRATOR = "administrator"
    GATEWAY = "gateway"
    TERMINAL = "terminal"
    # Runs the slices of a site: it reads how they are to be, and says how they are.
    AGENT = "agent"
