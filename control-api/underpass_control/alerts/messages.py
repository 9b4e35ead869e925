"""What targets are told, as JSON: a webhook of each alert, a mail of all that one look has found.

A program takes a thousand messages; people whose whole fleet is away want one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# A mail lists so many alerts, and counts the others.
_MOST_LISTED = 100


class News(NamedTuple):
    """An alert, as the API shows it, that is `firing` or `resolved` since this look."""

    event: str
    alert: Mapping[str, Any]


def webhook_body(news: News) -> str:
    """Return what a webhook is told of an alert."""
    return json.dumps(news._asdict(), separators=(",", ":"))


def mail_body(news: Sequence[News]) -> str:
    """Return what a mail says: alerts, and how many more there are."""
    listed = [one._asdict() for one in news[:_MOST_LISTED]]
    body = {"news": listed, "more": len(news) - len(listed)}
    return json.dumps(body, separators=(",", ":"))
