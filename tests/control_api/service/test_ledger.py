"""The ledger, balances and fairness as callers see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from sqlalchemy import delete, update
from underpass_control.instants import moment_of, rfc3339
from underpass_control.pruning import prune
from underpass_control.settlement import fairness
from underpass_control.settlement.check import Audit, audit
from underpass_control.settlement.period import Counted
from underpass_control.storage import ledger as stored
from underpass_control.storage import settled_usage, usage
from underpass_control.storage.models import (
    LedgerEntry,
    LedgerLot,
    LedgerOpening,
    LedgerPosting,
)

from dama.ledger import Entry, Kind, LedgerError, Lot, Posting
from dama.planner import Link
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_events import following
from tests.control_api.service.test_verbs import Shell, shell

__all__ = ["shell"]

LEDGER = "/v1/beams/ku-1/ledger"
FORGIVE = f"{LEDGER}/forgive"
BALANCES = "/v1/beams/ku-1/balances"
# In the past, so that the requested periods are over.
START_MS = now_ms() // 10_000 * 10_000 - 3_600_000


def lend(api: Api, bits: Sequence[int], link: Link = Link.FORWARD) -> None:
    """Let FIRST borrow these bits from SECOND, one period after the other."""

    async def write() -> None:
        async with api.changes.transaction() as (connection, publish):
            await stored.begin(connection, "ku-1", link, START_MS, 1)
            ledger = await stored.ledger_of(connection, "ku-1", link)
            entries = []
            for number, some in enumerate(bits):
                begin = START_MS + 10_000 * number
                sides = (Posting(str(FIRST), -some), Posting(str(SECOND), some))
                entries.append(Entry(begin, begin + 10_000, Kind.SETTLED, sides))
                ledger.apply(entries[-1])
            await stored.write(connection, publish, "ku-1", link, entries, ledger)

    api.run(write())


def moment(s: int) -> str:
    return rfc3339(moment_of(START_MS + 1000 * s))


def starts(entries: list[dict[str, object]]) -> list[object]:
    return [entry["start"] for entry in entries]


def test_entries_come_in_pages_in_order_of_time(api: Api) -> None:
    lend(api, [100, 200, 300, 400, 500])
    for order, expected in (("time", [0, 10, 20, 30, 40]), ("newest", [40, 30, 20, 10, 0])):
        found: list[dict[str, object]] = []
        for page in api.pages(f"{LEDGER}?limit=2&order={order}"):
            assert len(page["entries"]) <= 2
            found += page["entries"]
        assert starts(found) == [moment(s) for s in expected]
    assert found[-1]["postings"] == [
        {"terminal": FIRST, "bits": -100},
        {"terminal": SECOND, "bits": 100},
    ]
    assert (found[-1]["kind"], found[-1]["end"]) == ("settled", moment(10))


def test_entries_are_of_a_link_a_terminal_and_a_time(api: Api) -> None:
    lend(api, [100, 200, 300])
    lend(api, [400], Link.RETURN)
    assert starts(api.get(f"{LEDGER}?since={moment(10)}&link=forward").json["entries"]) == [
        moment(10),
        moment(20),
    ]
    assert len(api.get(f"{LEDGER}?until={moment(10)}").json["entries"]) == 2
    assert len(api.get(f"{LEDGER}?terminal={FIRST}").json["entries"]) == 4
    assert api.get(f"{LEDGER}?terminal=99").json == {"entries": []}
    assert api.get("/v1/beams/none/ledger").status == 404
    assert api.get(f"{LEDGER}?link=sideways").status == 400
    assert api.get(f"{LEDGER}?cursor=ImEi").status == 400


def balances_told(api: Api) -> dict[str, list[dict[str, object]]]:
    """The balances on each link, without the time of settlement, which changes by itself."""
    return {link["link"]: link["balances"] for link in api.get(BALANCES).json["links"]}


def test_balances_tell_who_owes_since_when_and_how_far_it_is_settled(api: Api) -> None:
    assert balances_told(api) == {"forward": [], "return": []}
    lend(api, [100, 200])
    assert balances_told(api) == {
        "forward": [
            {"terminal": FIRST, "bits": -300, "since": moment(10)},
            {"terminal": SECOND, "bits": 300, "since": moment(10)},
        ],
        "return": [],
    }
    [forward] = api.get(f"{BALANCES}?link=forward").json["links"]
    assert moment(0) <= forward["settled_until"] <= rfc3339(moment_of(now_ms()))


def test_an_operator_forgives_with_a_reason_that_is_kept(api: Api) -> None:
    lend(api, [300])
    body = {"link": "forward", "terminal": FIRST, "bits": 120, "reason": "out of service"}
    made = api.call("POST", FORGIVE, body)
    assert made.status == 201
    assert made.json["rule"] == "operator"
    assert made.json["postings"] == [
        {"terminal": FIRST, "bits": 120},
        {"terminal": SECOND, "bits": -120},
    ]
    newest = api.get(f"{LEDGER}?order=newest&limit=1").json["entries"][0]
    assert newest == made.json
    assert (newest["reason"], newest["made_by"]) == ("out of service", "the tests' operator")
    del body["bits"]
    assert api.call("POST", FORGIVE, body).status == 201
    assert api.get(f"{BALANCES}?link=forward").json["links"][0]["balances"] == []


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"bits": 301}, 409),
        ({"terminal": 99}, 409),
        ({"link": "return"}, 409),
        ({"bits": 0}, 422),
        ({"bits": -5}, 422),
        ({"bits": 2**63}, 422),
        ({"reason": ""}, 422),
        ({"reason": None}, 422),
    ],
)
def test_what_cannot_be_forgiven_is_refused(
    api: Api, change: dict[str, object], status: int
) -> None:
    lend(api, [300])
    body = {"link": "forward", "terminal": FIRST, "reason": "because"} | change
    refused = api.call("POST", FORGIVE, body)
    assert refused.status == status
    assert refused.problem
    assert len(api.get(LEDGER).json["entries"]) == 1


def test_only_operators_forgive_and_terminals_see_nothing_of_it(api: Api) -> None:
    lend(api, [300])
    body = {"link": "forward", "terminal": FIRST, "reason": "because"}
    for caller in ("viewer", "gateway", "first"):
        assert api.call("POST", FORGIVE, body, caller=caller).status == 403
    assert api.get(BALANCES, caller="first").status == 403
    assert api.get(BALANCES, caller="viewer").status == 200


def test_each_entry_is_told_as_an_event(api: Api) -> None:
    lend(api, [300])

    async def run() -> None:
        async with following(api, "kinds=ledger") as stream:
            body = {"link": "forward", "terminal": FIRST, "reason": "because"}
            made = (await api.ask("POST", FORGIVE, body)).json
            kind, told = await stream.next()
            assert kind == "ledger"
            expected = {"beam": "ku-1", "link": "forward", "entry": made["id"], "rule": "operator"}
            assert told | expected == told
            assert told["moved_bits"] == 300

    api.run(run())


def send(api: Api, terminal: int, mbit_per_s: float, until_s: int, blocked: range) -> None:
    """Report each second of a terminal's forward link."""

    async def count() -> None:
        sent = 0
        counts = []
        for second in range(until_s + 1):
            counts.append(
                usage.Count(
                    terminal=terminal,
                    link="forward",
                    node=1,
                    incarnation=1,
                    path="satellite",
                    uptime_ms=1000 * second,
                    time_ms=START_MS + 1000 * second,
                    sent_bytes=sent,
                    offered_bytes=sent,
                    blocked=second in blocked,
                )
            )
            sent += 0 if second in blocked else round(mbit_per_s * 10**6) // 8
        async with api.database.transaction() as connection:
            await usage.count(connection, counts)

    api.run(count())


def test_fairness_is_jains_index_of_what_was_sent_and_of_it_by_weight(api: Api) -> None:
    body = {"beam": "ku-1", "name": "bus", "weight": 3}
    assert api.call("PUT", f"/v1/terminals/{SECOND}", body).status == 200
    idle = {"beam": "ku-1", "name": "parked"}
    assert api.call("PUT", "/v1/terminals/13", idle).status == 201
    send(api, FIRST, 1.0, 60, range(0))
    send(api, SECOND, 3.0, 60, range(20, 30))

    async def keep() -> None:
        async with api.database.transaction() as connection:
            for period in range(6):
                counted = [Counted(FIRST, 9, 10, 1, False, False)]
                start_ms = START_MS + 10_000 * period
                await settled_usage.keep(connection, "ku-1", Link.FORWARD, start_ms, counted)

    api.run(keep())
    path = f"/v1/beams/ku-1/fairness?since={moment(0)}&until={moment(60)}"
    found = api.get(path).json
    assert (found["since"], found["until"]) == (moment(0), moment(60))
    forward, backward = found["links"]
    first, second, parked = forward["terminals"]
    assert (first["sent_bits"], first["throughput_bps"]) == (60 * 10**6, 10**6)
    assert (first["planned_bits"], first["fair_bits"]) == (60, 54)
    assert (second["sent_bits"], second["blocked_ms"]) == (150 * 10**6, 10_000)
    assert (parked["sent_bits"], parked["weight"]) == (0, 1)
    # Terminals without demand do not count: (1 + 2.5)² / (2 · (1 + 2.5²)).
    assert forward["jain"] == pytest.approx(3.5**2 / (2 * 7.25))
    assert forward["jain_by_weight"] == pytest.approx((6 + 5) ** 2 / (2 * (36 + 25)))
    assert "jain" not in backward
    # Whole periods that touch the range.
    part = api.get(f"/v1/beams/ku-1/fairness?since={moment(21)}&until={moment(29)}&link=forward")
    assert (part.json["since"], part.json["until"]) == (moment(20), moment(30))
    assert part.json["links"][0]["terminals"][1]["sent_bits"] == 0


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("since=2020-01-01T00:00:00Z", 422),
        ("since=2090-01-01T00:00:00Z", 422),
        ("since=2030-01-01T00:00:10Z&until=2030-01-01T00:00:10Z", 400),
        ("until=2030-01-01T00:00:00Z", 400),
        ("since=now", 400),
    ],
)
def test_ranges_that_are_none_or_too_long_are_refused(
    unchanged: Api, query: str, status: int
) -> None:
    refused = unchanged.get(f"/v1/beams/ku-1/fairness?{query}")
    assert refused.status == status
    assert refused.problem


def test_a_beam_without_terminals_costs_no_query_for_each_part_of_a_long_range(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_given: object) -> None:
        raise AssertionError("usage is read")

    monkeypatch.setattr(fairness, "usage", SimpleNamespace(usage=never))
    beam = {"name": "x", "forward_capacity_bps": 1, "return_capacity_bps": 1}
    assert api.call("PUT", "/v1/beams/empty", beam).status == 201
    found = api.get("/v1/beams/empty/fairness?since=1970-01-01T00:00:00Z")
    assert found.status == 200, found.text
    assert [link["terminals"] for link in found.json["links"]] == [[], []]


def test_the_verbs_show_what_the_service_tells(api: Api, shell: Shell) -> None:
    lend(api, [2_000_000, 1_000_000])
    entries = json.loads(shell("ledger", "show", "ku-1", "--most", "1", "--json"))
    assert starts(entries) == [moment(10)]
    assert f"{FIRST} -2.000000, {SECOND} +2.000000" in shell("ledger", "show", "ku-1")
    balance = shell("ledger", "balance", "ku-1")
    assert "3.000000" in balance
    assert json.loads(shell("ledger", "balance", "ku-1", "--json"))["beam"] == "ku-1"
    forgiven = shell(
        "ledger", "forgive", "ku-1", str(FIRST), "--link", "forward", "--reason", "a trial"
    )
    assert "a trial" in forgiven
    assert "owes nothing" in shell(
        "ledger", "forgive", "ku-1", str(FIRST), "--link", "forward", "--reason", "x", status=1
    )
    send(api, FIRST, 1.0, 60, range(0))
    until = moment(60)[:-5]
    shown = shell("fairness", "ku-1", "--minutes", "1", "--until", until)
    assert "60.000000" in shown
    found = json.loads(shell("fairness", "ku-1", "--minutes", "1", "--until", until, "--json"))
    assert found["links"][0]["jain"] == 1.0


def test_the_audit_finds_what_was_tampered_with(api: Api, shell: Shell) -> None:
    lend(api, [300, 200])
    where = ("--database", api.database.url.render_as_string(hide_password=False))
    (found,) = json.loads(shell("ledger", "check", "--json", *where))
    assert (found["entries"], found["postings"], found["faults"]) == (2, 4, [])
    assert found["balances"] == [
        {"terminal": FIRST, "bits": -500},
        {"terminal": SECOND, "bits": 500},
    ]

    async def tamper(statement: object) -> None:
        async with api.database.transaction() as connection:
            await connection.execute(statement)  # type: ignore[call-overload]

    api.run(tamper(update(LedgerLot).where(LedgerLot.terminal == FIRST).values(bits=-400)))
    told = shell("ledger", "check", *where, status=1)
    assert f"terminal {FIRST}: its entries come to -500 bits" in told
    assert "the ledger is not right" in told
    api.run(tamper(delete(LedgerPosting).where(LedgerPosting.bits == 200)))
    told = shell("ledger", "check", *where, status=1)
    assert "do not sum to zero" in told
    assert "the balances sum to -200 bits" in told


def test_the_audit_tells_how_far_it_is(api: Api) -> None:
    lend(api, [300, 200, 100])
    told: list[int] = []

    async def read() -> int:
        async with api.database.reading() as connection:
            assert [one async for one in audit(connection, told.append)]
            return await stored.count(connection)

    assert (api.run(read()), sum(told)) == (3, 3)


def test_an_empty_ledger_is_right(api: Api, shell: Shell) -> None:
    where = ("--database", api.database.url.render_as_string(hide_password=False))
    assert json.loads(shell("ledger", "check", "--json", *where)) == []


def audits(api: Api) -> list[Audit]:
    async def read() -> list[Audit]:
        async with api.database.reading() as connection:
            return [one async for one in audit(connection)]

    return api.run(read())


def lots(api: Api) -> dict[str, tuple[Lot, ...]]:
    async def read() -> dict[str, tuple[Lot, ...]]:
        async with api.database.reading() as connection:
            return await stored.lots_of(connection, "ku-1", Link.FORWARD)

    return api.run(read())


def pruned(api: Api, before_s: int) -> int:
    """Delete entries that ended before a time (s from the first's beginning); return the rows."""
    return api.run(prune(api.database, stored.prune, START_MS + 1000 * before_s))


def test_old_entries_are_deleted_and_no_balance_changes(api: Api) -> None:
    # Lent, lent, repaid in part, and lent again: the lots depend on the order.
    lend(api, [100, 200, -150, 70])
    balances, kept = balances_told(api), lots(api)
    assert pruned(api, 31) == 3 * (1 + 2)
    assert starts(api.get(LEDGER).json["entries"]) == [moment(30)]
    assert balances_told(api) == balances
    assert lots(api) == kept
    [found] = audits(api)
    assert found.faults == []
    assert found.entries == 1
    assert found.balances == {FIRST: -220, SECOND: 220}


def test_what_was_deleted_in_portions_comes_to_the_same(api: Api) -> None:
    lend(api, [number * (-1) ** number for number in range(1, 260)])
    kept = lots(api)
    assert pruned(api, 1_000) + pruned(api, 2_500) == 249 * 3
    assert pruned(api, 2_500) == 0
    assert lots(api) == kept
    lend(api, [5])
    assert audits(api)[0].faults == []


def test_a_ledger_of_which_every_entry_is_deleted_is_still_audited(api: Api) -> None:
    lend(api, [100, 200])
    assert pruned(api, 3_600) == 6
    [found] = audits(api)
    assert (found.entries, found.balances) == (0, {FIRST: -300, SECOND: 300})
    assert found.faults == []


def test_an_opening_that_does_not_balance_is_found(api: Api) -> None:
    lend(api, [100, 200])
    pruned(api, 11)

    async def change() -> None:
        async with api.database.transaction() as connection:
            statement = update(LedgerOpening).where(LedgerOpening.terminal == FIRST)
            await connection.execute(statement.values(bits=-99))

    api.run(change())
    assert "deleted entries" in audits(api)[0].faults[0]


def test_a_wrong_entry_is_not_deleted(api: Api) -> None:
    lend(api, [100, 200])

    async def change() -> None:
        async with api.database.transaction() as connection:
            statement = update(LedgerPosting).where(LedgerPosting.terminal == FIRST)
            await connection.execute(statement.values(bits=-1))

    api.run(change())
    with pytest.raises(LedgerError):
        pruned(api, 3_600)
    assert len(api.get(LEDGER).json["entries"]) == 2


def test_the_newest_entry_in_between_keeps_those_behind_it(api: Api) -> None:
    lend(api, [100, 200, 300])

    async def change() -> None:
        async with api.database.transaction() as connection:
            statement = update(LedgerEntry).where(LedgerEntry.from_ms == START_MS + 10_000)
            await connection.execute(statement.values(to_ms=START_MS + 900_000))

    api.run(change())
    assert pruned(api, 600) == 3
    assert starts(api.get(LEDGER).json["entries"]) == [moment(10), moment(20)]
