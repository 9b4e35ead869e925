"""The grants of a beam's plans to its terminals, while nodes still follow them."""

from __future__ import annotations

from collections import OrderedDict

from dama.planner import Link
from underpass_control.fades import Grant
from underpass_control.planning.wire import WirePlan

# A node follows an earlier plan for a signalling delay, and its report takes as long to come back.
_MOST_PLANS = 8


class Grants:
    """The last plans of both links, by their versions."""

    def __init__(self) -> None:
        self._plans: dict[Link, OrderedDict[int, WirePlan]] = {link: OrderedDict() for link in Link}

    def knows(self, link: Link) -> bool:
        """Tell whether there has been a plan of a link."""
        return bool(self._plans[link])

    def take(self, link: Link, version: int, plan: WirePlan) -> None:
        """Take a plan in."""
        plans = self._plans[link]
        plans[version] = plan
        while len(plans) > _MOST_PLANS:
            plans.popitem(last=False)

    def of(self, link: Link, terminal: int, version: int | None, at_ms: int) -> Grant | None:
        """Return a plan's grant to a terminal at a time; None if unknown."""
        plan = self._plans[link].get(version) if version is not None else None
        return None if plan is None else plan.granted(terminal, at_ms)
