"""Nodes' measurements of their links, from the report to the plan."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_plans import BEAM, moment, planned
from tests.control_api.service.test_reports import entry, link, states, status, taken

# The return link of the beam, of two terminals.
FAIR_BPS = 1_000_000
LIMIT = {"capacity_bps": FAIR_BPS // 4, "reason": "limit"}


def line_of(api: Api, terminal: int = FIRST) -> dict[str, Any]:
    plan = api.get(f"{BEAM}/plans/return?terminal={terminal}").json
    (line,) = plan["lines"]
    return {"plan": plan["plan"], **line}


def report_a_fade(api: Api, plan: int, measured: dict[str, object] | None = None) -> None:
    """Report half a minute in which both terminals have a backlog, and one sends a quarter."""
    at_ms = now_ms() + 1_000
    for second in range(26):
        members: dict[str, Any] = {
            "backlogged_bytes": 10_000_000,
            "sent_bytes": second * FAIR_BPS // 4 // 8,
            "plan_version": plan,
            "measured": LIMIT if measured is None else measured,
        }
        # The plan begins some tenths of a second after it was made.
        made = status(
            link(**members),
            time_ms=at_ms + 1_000 * second,
            uptime_ms=1_000_000 + 1_000 * second,
            synchronised=True,
        )
        clear = status(
            link(SECOND, backlogged_bytes=10_000_000, sent_bytes=second * FAIR_BPS // 8),
            time_ms=at_ms + 1_000 * second,
            uptime_ms=1_000_000 + 1_000 * second,
            synchronised=True,
        )
        taken(api, entry(made), entry(clear, SECOND))


def until_planned(api: Api, efficiency: float) -> dict[str, Any]:
    until = time.monotonic() + 60
    while True:
        line = line_of(api)
        if line["efficiency"] == pytest.approx(efficiency, rel=0.02):
            return line
        assert time.monotonic() < until, line
        api.run(asyncio.sleep(0.1))


@pytest.mark.parametrize("fair_share", ["symbols", "bits"])
def test_a_measured_fade_is_planned_with_by_the_policy_of_the_beam(
    api: Api, fair_share: str
) -> None:
    beam = api.get(BEAM).json
    assert beam["fair_share"] == "symbols"
    body = {name: value for name, value in beam.items() if name != "id"}
    assert api.call("PUT", BEAM, {**body, "fair_share": fair_share}).status == 200
    planned(api, "return")
    before = line_of(api)
    assert before["efficiency"] == 1.0
    report_a_fade(api, before["plan"])
    line = until_planned(api, 0.25)
    assert line["plan"] > before["plan"]
    page = api.get(f"{BEAM}/plans?link=return&limit=20").json["plans"]
    assert "efficiency" in {one["reason"] for one in page}
    other = line_of(api, SECOND)
    assert other["efficiency"] == 1.0
    both = [one["segments"][0]["rate_bps"] for one in (line, other)]
    # Two megabits of capacity: by bits, the one in the fade gets four fifths.
    expected = [250_000, 1_000_000] if fair_share == "symbols" else [400_000, 400_000]
    assert both == pytest.approx(expected, rel=0.02)
    text = api.get("/metrics").text
    assert 'underpass_control_terminals_faded{beam="ku-1",link="return"} 1.0' in text
    assert 'underpass_control_terminals_faded{beam="ku-1",link="forward"} 0.0' in text


def test_what_a_modem_tells_counts_over_what_is_measured(api: Api) -> None:
    planned(api, "return")
    report_a_fade(api, line_of(api)["plan"])
    until_planned(api, 0.25)
    told = status(link(efficiency=0.5), time_ms=now_ms() + 30_000, uptime_ms=10**9)
    taken(api, entry({**told, "synchronised": True}))
    until_planned(api, 0.5)
    state = states(api)[FIRST, "return"]
    assert (state.efficiency, state.efficiency_told) == (0.5, True)


def test_what_is_measured_is_shown_now_and_over_time(api: Api) -> None:
    at_ms = now_ms() // 10_000 * 10_000 - 100_000
    measured: list[dict[str, object] | None] = [
        None,
        {"capacity_bps": 400_000, "reason": "limit"},
        {"capacity_bps": 500_000, "reason": "probe"},
        {"capacity_bps": 600_000, "reason": "of a later release"},
    ]
    for turn, (direction, node) in itertools.product(
        range(len(measured)), (("return", FIRST), ("forward", 1))
    ):
        members: dict[str, Any] = {}
        if measured[turn] is not None:
            members["measured"] = measured[turn]
        made = status(
            link(FIRST, direction, **members),
            time_ms=at_ms + 10_000 * turn,
            uptime_ms=10_000 * (turn + 1),
            synchronised=True,
        )
        taken(api, entry(made, node))
    (newest,) = [
        one
        for one in api.get(f"/v1/terminals/{FIRST}/links").json["links"]
        if one["link"] == "return"
    ]
    assert (newest["capacity_bps"], newest["capacity_reason"]) == (600_000, "of a later release")
    assert (newest["efficiency"], newest["efficiency_told"]) == (1.0, False)
    path = f"/v1/terminals/{FIRST}/carried"
    whole = api.get(path).json["carried"]
    assert [one["capacity_bps"] for one in whole if one["link"] == "return"] == [
        400_000,
        500_000,
        600_000,
    ]
    assert "efficiency" not in whole[0]
    for order, expected in (("time", whole), ("newest", whole[::-1])):
        pages = api.pages(f"{path}?order={order}&limit=1")
        assert [one for page in pages for one in page["carried"]] == expected
    some = f"{path}?link=forward&since={moment(at_ms + 15_000)}&until={moment(at_ms + 35_000)}"
    assert [one["capacity_bps"] for one in api.get(some).json["carried"]] == [500_000, 600_000]
    assert api.get(path, caller="first").status == 200
    assert api.get(path, caller="second").status == 403
    assert api.get("/v1/terminals/99/carried").status == 404
    assert api.get(f"{path}?cursor=e30").status == 400


def test_nonsense_is_passed_over_and_counted_and_the_rest_is_taken(api: Api) -> None:
    for wrong in (0, 10**12 + 1, 2**63 - 1):
        made = status(link(SECOND, "forward", streams=7, measured={**LIMIT, "capacity_bps": wrong}))
        taken(api, entry(made, 1))
        state = states(api)[SECOND, "forward"]
        assert (state.streams, state.capacity_bps, state.capacity_reason) == (7, None, None)
    assert "underpass_control_capacities_passed_over_total 3.0" in api.get("/metrics").text


def test_a_terminal_that_claims_to_carry_nothing_is_given_no_less_than_a_sixteenth(
    api: Api,
) -> None:
    planned(api, "return")
    report_a_fade(api, line_of(api)["plan"], {"capacity_bps": 1, "reason": "limit"})
    # Its sent bytes disprove the rest of its claim.
    assert until_planned(api, 0.25)["guaranteed_bps"] > 0
