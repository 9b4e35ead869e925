"""The roles of bearer tokens."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a token is for."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    GATEWAY = "gateway"
    TERMINAL = "terminal"
