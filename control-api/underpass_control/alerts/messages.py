"""The messages to targets, as JSON: a webhook per alert, one mail for all that a look has found.

A program can take a thousand messages; people whose whole fleet is away want one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# The most alerts that a mail lists; it counts the others.
_MOST_LISTED = 100


class News(NamedTuple):
    """An alert, as the API shows it, that is `firing` or `resolved` since this look.

    It may also be a rollout that has `stopped`, with a `text`.
    """

    event: str
    subject: Mapping[str, Any]
    # What it is: the name of its member.
    what: str = "alert"

    def document(self) -> dict[str, Any]:
        """Return it as targets are sent it."""
        return {"event": self.event, self.what: self.subject}


def webhook_body(news: News) -> str:
    """Return the body for a webhook."""
    return json.dumps(news.document(), separators=(",", ":"))


def mail_body(news: Sequence[News]) -> str:
    """Return the body for a mail: alerts, and how many more there are."""
    listed = [one.document() for one in news[:_MOST_LISTED]]
    body = {"news": listed, "more": len(news) - len(listed)}
    return json.dumps(body, separators=(",", ":"))
