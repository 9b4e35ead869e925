"""Changes of terminals that matter only to people cause no new plan and no sending."""

from __future__ import annotations

from typing import Any, cast

from underpass_control.metrics import Metrics
from underpass_control.planning.newest_plans import NewestPlans
from underpass_control.planning.seen_terms import SeenTerms
from underpass_control.storage.database import Database

ROUTE = {"terminal": 11, "action": "route"}


def told(**changed: Any) -> dict[str, Any]:
    """Return a change of a terminal, as in events."""
    state = {"node": 11, "beam": "ku-1", "name": "coach", "weight": 1, "tenant": "default"}
    return {"terminal": 11, "action": "set", "state": {**state, "tags": [], **changed}}


def test_names_tags_and_routes_concern_no_plan() -> None:
    seen = SeenTerms()
    assert seen.differ(told())
    assert not seen.differ(told(name="another", tags=["night"], tenant="north"))
    assert not seen.differ(ROUTE)
    terms: list[dict[str, Any]] = [
        *({"beam": "ka-2"}, {"weight": 2}, {"gateway": 4}, {"heard_by": 5}, {"opensand_id": 3}),
        *({"forward_minimum_bps": 8}, {"forward_maximum_bps": 9}),
        *({"return_minimum_bps": 8}, {"return_maximum_bps": 9}),
    ]
    for changed in terms:
        assert seen.differ(told(**changed))
        assert not seen.differ(told(**changed, name="another"))


def test_what_was_deleted_or_missed_is_not_known() -> None:
    seen = SeenTerms()
    seen.differ(told())
    assert seen.differ({"terminal": 11, "action": "deleted"})
    assert seen.differ(told())
    seen.forget()
    assert seen.differ(told())


async def test_nobody_looks_for_plans_because_a_vehicle_is_tagged() -> None:
    plans = NewestPlans(cast(Database, None), Metrics())
    plans.on_change("terminal", told())
    news, changed = plans.news_event(), plans.settings_changed
    plans.on_change("terminal", told(tags=["night"]))
    plans.on_change("terminal", ROUTE)
    assert (news.is_set(), plans.settings_changed) == (False, changed)
    plans.on_change("terminal", told(gateway=2))
    assert (news.is_set(), plans.settings_changed) == (True, changed + 1)
