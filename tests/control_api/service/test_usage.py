"""Links' usage is counted correctly for any order of reports, and never twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from underpass_control.storage import usage as stored
from underpass_control.storage.usage import Count
from underpass_control.usage import BUCKET_MS, Usage

from dama.planner import Link
from tests.control_api.service.api import FIRST, SECOND, Api

START_MS = 1_800_000_000_000
_RUNS = itertools.count(100)


def counted(second: float, sent_bytes: int, *, blocked: bool = False, **members: object) -> Count:
    uptime_ms = round(1000 * second)
    made = Count(
        terminal=FIRST,
        link="return",
        node=FIRST,
        incarnation=1,
        path="satellite",
        uptime_ms=uptime_ms,
        time_ms=START_MS + uptime_ms,
        sent_bytes=sent_bytes,
        offered_bytes=2 * sent_bytes,
        blocked=blocked,
    )
    return replace(made, **members)  # type: ignore[arg-type]


def take(api: Api, *batches: Iterable[Count]) -> None:
    async def run() -> None:
        for batch in batches:
            async with api.database.transaction() as connection:
                await stored.count(connection, batch)

    api.run(run())


def read(
    api: Api, since_s: int = 0, until_s: int = 100, terminal: int = FIRST, at_ms: int = START_MS
) -> list[Usage]:
    async def run() -> dict[int, list[Usage]]:
        async with api.database.reading() as connection:
            return await stored.usage(
                connection, "ku-1", Link.RETURN, at_ms + 1000 * since_s, at_ms + 1000 * until_s
            )

    return api.run(run()).get(terminal, [])


def sent(buckets: Sequence[Usage]) -> list[int]:
    return [bucket.sent_bits for bucket in buckets]


def test_what_is_sent_between_two_reports_is_spread_over_the_buckets_between(api: Api) -> None:
    take(api, [counted(5, 0), counted(35, 30_000)])
    assert sent(read(api)) == [40_000, 80_000, 80_000, 40_000]
    assert [bucket.offered_bits for bucket in read(api)] == [80_000, 160_000, 160_000, 80_000]


def test_a_part_is_what_the_whole_has_there(api: Api) -> None:
    take(api, [counted(5, 0), counted(77, 72_001)])
    whole = read(api)
    for begin, end in ((0, 20), (10, 30), (30, 40), (70, 80), (60, 100)):
        assert read(api, begin, end) == whole[begin // 10 : end // 10]


def test_a_bucket_is_complete_once_reports_cover_it(api: Api) -> None:
    take(api, [counted(n, n * 1000) for n in range(15)])
    assert [bucket.complete for bucket in read(api)] == [True, False]
    # The newest after a blockage comes first.
    take(api, [counted(45, 45_000)])
    assert [bucket.complete for bucket in read(api)] == [True, False, False, False, False]
    take(api, [counted(n, n * 1000) for n in range(15, 45)])
    assert [bucket.complete for bucket in read(api)] == [True, True, True, True, False]
    assert sent(read(api)) == [80_000] * 4 + [40_000]


def test_a_lost_report_leaves_it_complete(api: Api) -> None:
    take(api, [counted(n, n * 1000) for n in range(21) if n not in (4, 10)])
    assert [bucket.complete for bucket in read(api)] == [True, True, False]


@pytest.mark.parametrize("offset", [0, 3.5, 9])
def test_an_idle_link_is_complete_with_a_report_each_ten_seconds_and_a_busy_one_is_not(
    api: Api, offset: float
) -> None:
    take(api, [counted(10.1 * n + offset, 700 * n) for n in range(10)])
    assert all(bucket.complete for bucket in read(api, 20, 80))
    # It is unknown when, between two reports, a busy link sent.
    busy = [counted(10.1 * n + offset, 70_000 * n, terminal=SECOND) for n in range(10)]
    take(api, busy)
    assert not any(bucket.complete for bucket in read(api, 20, 80, SECOND))


@pytest.mark.parametrize("offset", [0, 3.5, 9])
def test_a_link_with_acknowledgements_only_is_complete_with_a_report_each_ten_seconds(
    api: Api, offset: float
) -> None:
    # Their bytes are no news to the node, which reports no more often than on an idle link.
    of_download = [
        counted(10.1 * n + offset, 140_000 * n, offered_bytes=500 * n) for n in range(10)
    ]
    take(api, of_download)
    assert all(bucket.complete for bucket in read(api, 20, 80))
    # Missing reports of a blockage still leave it incomplete.
    take(api, [counted(120 + offset, 140_000 * 12, offered_bytes=500 * 12)])
    assert not read(api, 100, 110)[0].complete


def test_blocked_time_is_that_of_the_reports_that_could_not_send(api: Api) -> None:
    take(api, [counted(n, min(n, 7) * 1000, blocked=7 <= n < 23) for n in range(31)])
    assert [bucket.blocked_ms for bucket in read(api)] == [3_000, 10_000, 3_000, 0]


def test_a_time_without_reports_goes_on_as_it_was(api: Api) -> None:
    blocked = [counted(n, 1000, blocked=n > 5) for n in range(9)]
    take(api, blocked, [counted(31, 2000)])
    assert [bucket.blocked_ms for bucket in read(api)] == [4_000, 10_000, 10_000, 1_000]
    assert read(api, 20, 30)[0].blocked_ms == 10_000


def test_a_run_that_has_just_begun_is_known_from_its_start(api: Api) -> None:
    take(api, [counted(4, 4_000), counted(10, 10_000)])
    assert sent(read(api)) == [80_000, 0]


def test_what_a_long_run_counted_before_it_was_heard_of_is_left_out(api: Api) -> None:
    day = 86_400_000
    take(api, [counted(4, 10**9, uptime_ms=day), counted(8, 10**9 + 4_000, uptime_ms=day + 4_000)])
    assert sent(read(api)) == [32_000]


def test_a_node_started_anew_counts_from_nothing(api: Api) -> None:
    first = [counted(n, n * 1000) for n in range(6)]
    again = [
        counted(n, n * 1000, incarnation=2, time_ms=START_MS + 8_000 + n * 1000) for n in range(13)
    ]
    take(api, again, first)
    assert sent(read(api)) == [40_000 + 16_000, 80_000, 0]


def test_paths_and_gateways_of_a_terminal_add_up(api: Api) -> None:
    one = [counted(n, n * 1000) for n in range(11)]
    other = [counted(n, n * 500, path="cellular") for n in range(11)]
    take(api, one + other)
    assert sent(read(api)) == [120_000, 0]
    assert read(api)[0].complete


def test_a_link_that_any_path_can_send_on_is_not_blocked(api: Api) -> None:
    one = [counted(n, n * 1000) for n in range(11)]
    down = [counted(n, 0, node=2, blocked=True) for n in range(11)]
    take(api, one + down)
    assert [bucket.blocked_ms for bucket in read(api)] == [0, 0]


def test_a_clock_set_back_loses_nothing(api: Api) -> None:
    take(api, [counted(12, 0), counted(13, 7_000, time_ms=START_MS + 11_000), counted(14, 9_000)])
    assert sum(sent(read(api))) == 72_000


def test_efficiency_is_the_last_reports(api: Api) -> None:
    told = {"efficiency_told": True}
    counts = [counted(3, 0, efficiency=1.1, **told), counted(9, 0, efficiency=2.25, **told)]
    take(api, [*counts, counted(25, 0)])
    assert [one.efficiency for one in read(api)] == [Fraction(9, 4), Fraction(9, 4), None]


def test_old_usage_is_deleted(api: Api) -> None:
    take(api, [counted(n, n * 1000) for n in range(45)])

    async def prune() -> int:
        async with api.database.transaction() as connection:
            return await stored.prune(connection, START_MS + 20_000, limit=1)

    assert [api.run(prune()) for _ in range(3)] == [1, 1, 0]
    # The first report kept is of a run that began before it.
    assert sent(read(api, 20, 40)) == [80_000, 80_000]


reports = st.lists(
    st.tuples(st.integers(300, 4_000), st.integers(0, 5_000), st.booleans()),
    min_size=2,
    max_size=40,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=reports, data=st.data())
def test_any_order_and_any_repetition_give_the_same(
    api: Api, steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    # No two cases share a run or a time.
    case = next(_RUNS)
    at_ms = START_MS + case * 1_000_000
    uptime_ms = sent_bytes = 0
    made: list[Count] = []
    for step_ms, step_bytes, blocked in steps:
        uptime_ms += step_ms
        sent_bytes += step_bytes
        made.append(
            counted(
                0,
                sent_bytes,
                blocked=blocked,
                uptime_ms=uptime_ms,
                time_ms=at_ms + uptime_ms,
                incarnation=case,
            )
        )
    shuffled = data.draw(st.permutations(made + made[::2]))
    cut = data.draw(st.integers(0, len(shuffled)))
    take(api, [replace(one, terminal=SECOND) for one in made], shuffled[:cut], shuffled[cut:])
    buckets = read(api, 0, 200, at_ms=at_ms)
    assert buckets == read(api, 0, 200, SECOND, at_ms)
    assert sum(sent(buckets)) == 8 * sent_bytes
    assert [bucket.start_ms for bucket in buckets] == [
        at_ms + n * BUCKET_MS for n in range(uptime_ms // BUCKET_MS + 1)
    ]


def test_many_terminals_are_counted_at_once(api: Api) -> None:
    terminals = 50

    async def run() -> dict[int, list[Usage]]:
        for node in range(1000, 1000 + terminals):
            body = {"beam": "ku-1", "name": f"vehicle {node}"}
            assert (await api.ask("PUT", f"/v1/terminals/{node}", body)).status == 201
        async with api.database.transaction() as connection:
            await stored.count(
                connection,
                (
                    counted(second, second * 1000, terminal=node, node=node)
                    for second in range(21)
                    for node in range(1000, 1000 + terminals)
                ),
            )
        async with api.database.reading() as connection:
            return await stored.usage(
                connection, "ku-1", Link.RETURN, START_MS, START_MS + 2 * BUCKET_MS
            )

    found = api.run(run())
    assert len(found) == terminals
    assert {tuple(sent(buckets)) for buckets in found.values()} == {(80_000, 80_000)}
