"""Moments: RFC 3339 outside, integer ms since the Unix epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime

# A clock may be a little ahead of ours; more is a mistake that would hide all that follow.
_AHEAD_MS = 60_000
# Before satellite navigation existed: a receiver without a time reports such times.
_EARLIEST_MS = 315_964_800_000


def rfc3339(moment: datetime) -> str:
    """Return a moment as the API writes it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(moment: datetime) -> int:
    """Return a moment in ms since the Unix epoch."""
    return round(moment.timestamp() * 1000)


def milliseconds_of(text: str) -> int:
    """Return what `rfc3339` wrote, in ms since the Unix epoch."""
    return milliseconds(datetime.fromisoformat(text))


def moment_of(ms: int) -> datetime:
    """Return the moment of ms since the Unix epoch."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def is_plausible(time_ms: int, now_ms: int) -> bool:
    """Tell whether a report that comes now can have this time."""
    return _EARLIEST_MS <= time_ms <= now_ms + _AHEAD_MS
