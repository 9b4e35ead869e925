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
    """An alert, as the API shows it, that is `firing` or `resolved` since this look.

    Or a rollout that has `stopped`; it has a `text`, too.
    """

    event: str
    subject: Mapping[str, Any]
    # What it is: the name of its member.
    what: str = "alert"

    def document(self) -> dict[str, Any]:
        """Return it as targets are told it."""
        return {"event": self.event, self.what: self.subject}


def webhook_body(news: News) -> str:
    """Return what a webhook is told of an alert."""
    return json.dumps(news.document(), separators=(",", ":"))


def mail_body(news: Sequence[News]) -> str:
    """Return what a mail says: alerts, and how many more there are."""
    listed = [one.document() for one in news[:_MOST_LISTED]]
    body = {"news": listed, "more": len(news) - len(listed)}
    return json.dumps(body, separators=(",", ":"))
