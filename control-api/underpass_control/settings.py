"""What an operator sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How the service goes about its work."""

    # Position reports older than this are deleted; None keeps them for ever.
    keep_positions_s: float | None = 30 * 86_400.0
    # How often it is looked for them.
    prune_every_s: float = 600.0
