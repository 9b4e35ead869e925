"""Moments: RFC 3339 outside, integer ms since the Unix epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return a moment as the API writes it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(moment: datetime) -> int:
    """Return a moment in ms since the Unix epoch."""
    return round(moment.timestamp() * 1000)


def moment_of(ms: int) -> datetime:
    """Return the moment of ms since the Unix epoch."""
    return datetime.fromtimestamp(ms / 1000, UTC)
