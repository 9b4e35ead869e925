"""Which changes of terminals concern what is planned, and where plans are sent.

Whoever may tag vehicles changes them as often as he likes. With each request, all terminals of a
beam would be read again, and for each gateway that follows its plans, all that it is to be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Of a terminal's state, as events show it: the rest is for people.
_COUNTS = (
    *("beam", "weight", "gateway", "heard_by", "opensand_id"),
    *("forward_minimum_bps", "forward_maximum_bps", "return_minimum_bps", "return_maximum_bps"),
)


class SeenTerms:
    """What changes have last told of each terminal that has changed."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, ...]] = {}

    def differ(self, data: Mapping[str, Any]) -> bool:
        """Take in a change of a terminal; tell whether it concerns anything but people and routes.

        The first one of a terminal may.
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
        """Take in that changes may have been missed."""
        self._seen.clear()
