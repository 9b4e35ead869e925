"""Plans of large beams fit into documents, and the ledger follows the published plans."""

from __future__ import annotations

import itertools
import json
from typing import Any, cast

import numpy as np
import pytest
from underpass_control.metrics import Metrics
from underpass_control.planning import newest_plans
from underpass_control.planning import published as publishing
from underpass_control.planning.newest_plans import NewestPlans
from underpass_control.planning.published import MOST_DOCUMENT_BYTES, MOST_SEGMENTS, published
from underpass_control.planning.wire import WirePlan
from underpass_control.storage.database import Database

from dama.planner import Blockage, CapacityStep, Link, Plan, Request, Terminal, plan
from tests.dama.requests import town

T0 = 1_795_230_000_000


def beam(
    terminals: int, blockages: int, link: Link = Link.FORWARD, *, demand_bps: int | None = None
) -> Plan:
    """Plan a beam in which all balances differ and some terminals are blocked."""
    random = np.random.default_rng(7)
    return plan(
        Request(
            "east",
            link,
            T0,
            T0 + 240_000,
            (CapacityStep(T0, terminals * 2_000_000),),
            tuple(
                Terminal(
                    str(node),
                    owed_bits=int(random.integers(-8_000_000, 8_000_000)),
                    demand_bps=demand_bps,
                )
                for node in range(1, terminals + 1)
            ),
            tuple(
                Blockage(str(node), entry_ms, entry_ms + int(random.integers(500, 50_000)))
                for node in range(1, blockages + 1)
                for entry_ms in [T0 + int(random.integers(2_000, 110_000))]
            ),
            signalling_delay_ms=400,
            one_way_delay_ms=280,
            settle_ms=T0 + 220_000,
        )
    )


def document(wire: WirePlan, terminals: int) -> str:
    return wire.document(1_795_230_000, set(range(1, terminals + 1)), alone=True)


def sent(text: str, made: Plan) -> dict[int, np.ndarray[Any, Any]]:
    """Return the rates per column of each terminal, as a gateway reads them."""
    rates: dict[int, np.ndarray[Any, Any]] = {}
    bounds = np.array(made.times_ms)
    for line in json.loads(text)["lines"]:
        ends = [segment["end_ms"] for segment in line["segments"]]
        places = np.searchsorted(ends, bounds[:-1], side="right")
        of = np.array([segment["rate_bps"] for segment in line["segments"]])[places]
        rates |= dict.fromkeys(line["terminals"], of)
    return rates


@pytest.mark.parametrize("link", Link)
def test_two_thousand_terminals_that_all_differ_fit_into_one_document(link: Link) -> None:
    exact = beam(2_000, 50, link)
    assert WirePlan(exact).segments > 2 * MOST_SEGMENTS
    made, wire = published(exact)
    text = document(wire, 2_000)
    assert len(text) < MOST_DOCUMENT_BYTES / 2
    assert wire.segments <= MOST_SEGMENTS
    assert wire.segments == sum(len(line["segments"]) for line in json.loads(text)["lines"])
    # Others read it from the database and send the same document.
    assert document(WirePlan(made), 2_000) == text
    rates = sent(text, made)
    whole = sum(rates.values())
    capacity = np.array(made.capacity_bps)
    assert (whole <= capacity).all()
    durations = np.diff(made.times_ms)
    assert (whole * durations).sum() > 0.998 * (capacity * durations).sum()


def test_what_the_ledger_goes_by_is_what_gateways_are_sent() -> None:
    made, wire = published(beam(1_000, 60))
    assert made.tolerance > 0
    amounts = made.amounts(made.start_ms, made.end_ms)
    durations = np.diff(made.times_ms)
    for node, rates in sent(document(wire, 1_000), made).items():
        given, _ = amounts[str(node)]
        # Except for rounding, which puts the plan up to 40 times as far from the exact one.
        assert abs((rates * durations).sum() / 1_000 - given) < given * 5e-5


def test_what_fits_is_published_to_the_bit() -> None:
    exact = beam(100, 20)
    made, wire = published(exact)
    assert made is exact
    assert document(wire, 100) == document(WirePlan(exact), 100)


def test_spare_capacity_of_a_coarse_plan_is_given_out_all_the_same() -> None:
    made, wire = published(beam(2_000, 50, Link.RETURN, demand_bps=1_500_000))
    assert made.tolerance > 0
    text = document(wire, 2_000)
    assert wire.segments <= MOST_SEGMENTS
    whole = sum(sent(text, made).values())
    capacity = np.array(made.capacity_bps)
    assert (whole <= capacity).all()
    durations = np.diff(made.times_ms)
    assert (whole * durations).sum() > 0.99 * (capacity * durations).sum()


def test_the_coarsest_plan_is_published_if_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_SEGMENTS", 100)
    made, wire = published(beam(200, 10))
    assert made.tolerance == 2.0**-3
    assert wire.segments > 100


def accepted(text: str) -> dict[str, Any]:
    """Read a document as a gateway does: it takes a bounded number of steps (`gateway/plans`)."""
    assert len(text) <= MOST_DOCUMENT_BYTES
    found: dict[str, Any] = json.loads(text)
    begins = [step["from_ms"] for step in found["capacity"]]
    assert 1 <= len(begins) <= 4_096
    assert begins[0] <= found["start_ms"]
    assert all(a < b for a, b in itertools.pairwise(begins))
    for line in found["lines"]:
        segments = line["segments"]
        assert 1 <= len(segments) <= 4_096
        ends = [found["start_ms"], *(segment["end_ms"] for segment in segments)]
        assert [segment["start_ms"] for segment in segments] == ends[:-1]
        assert all(a < b for a, b in itertools.pairwise(ends))
        assert ends[-1] == found["end_ms"]
        assert not any(one["rate_bps"] for one in segments if one["state"] == "blocked")
    return found


@pytest.mark.parametrize("times_the_limit", [2, 10])
def test_several_gateways_take_the_plan_of_a_town_full_of_blockages(times_the_limit: int) -> None:
    request = town(3, 100, times_the_limit * 2_048, sure=True, longest_ms=60)
    made, wire = published(plan(request))
    bounds = np.array(made.times_ms[:-1])
    whole = np.zeros(len(bounds))
    for gateway in (set(range(1, 51)), set(range(51, 101))):
        found = accepted(wire.document(1_795_230_000, gateway, alone=False))
        begins = [step["from_ms"] for step in found["capacity"]]
        rates = np.array([step["rate_bps"] for step in found["capacity"]])
        whole += rates[np.searchsorted(begins, bounds, side="right") - 1]
    assert (whole <= np.array(made.capacity_bps)).all()


def failed(metrics: Metrics) -> float:
    name = "underpass_control_planning_failures_total"
    return metrics.registry.get_sample_value(name, {"why": "size"}) or 0.0


async def test_what_no_gateway_takes_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "east", Link.FORWARD
    metrics = Metrics()
    plans = NewestPlans(cast(Database, None), metrics)
    plans._gateways["east"] = dict.fromkeys(range(1, 11), 1)
    async with plans.making(key) as made:
        made(42, WirePlan(beam(10, 2)))
    plans.on_change("plans", {"beam": "east", "link": "forward", "plan": 42})
    outgoing = await plans.newest(key, 1, 0)
    assert outgoing is not None and outgoing.version == 42
    # An event of that size would end the stream, again and again.
    monkeypatch.setattr(newest_plans, "MOST_DOCUMENT_BYTES", len(outgoing.document) - 1)
    # Documents prepared before are checked anew.
    assert await plans.newest(key, 1, 0) is None
    assert failed(metrics) == 0.0
    plans._documents.clear()
    for _ in range(3):
        assert await plans.newest(key, 1, 0) is None
    # It counts once for each gateway that gets no plan, for alerts.
    assert failed(metrics) == 1.0
