"""Which changes of terminals concern plans and the gateways to which they are sent.

A caller that may tag vehicles can change them as often as it likes. Without this check, each such
request would make the service read all terminals of the beam again, and all data for each of its
gateways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The members of a terminal's state in events that concern plans; the rest is for people.
_COUNTS = (
    *("beam", "weight", "gateway", "heard_by", "opensand_id"),
    *("forward_minimum_bps", "forward_maximum_bps", "return_minimum_bps", "return_maximum_bps"),
)


class SeenTerms:
    """The last known terms of each terminal that has changed."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, ...]] = {}

    def differ(self, data: Mapping[str, Any]) -> bool:
        """Take in a change of a terminal; tell whether it may concern plans.

        The first change of a terminal counts as such.
        """
        node, action = data["terminal"], data["action"]
        if action == "route":
            return False
        if action != "set":
            self._seen.pop(node, None)
            return True
        terms = tuple(map(data["state"].get, _COUNTS))
        known, self._seen[node] = self._seen.get(node), terms
        return known != terms

    def forget(self) -> None:
        """Note that changes may have been missed."""
        self._seen.clear()
