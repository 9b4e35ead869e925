from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.benchmarks.bench import HEADERS_LEAVE
from tests.benchmarks.experiments.loaded import (
    Load,
    Loaded,
    add_records,
    constant,
    each_quarter_second,
)
from tests.benchmarks.experiments.traced import resumptions
from tests.benchmarks.records import Result
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import PROFILE_V
from tests.traces.trace import Step, Trace


def loaded(trace: Trace, load: Load, curve: list[tuple[float, int]]) -> Loaded:
    return Loaded(trace, load, Transfer(10**12, curve=curve), [], [], [])


def test_a_link_in_full_use_from_the_first_round_trip_on_is_a_hundred_percent() -> None:
    trace, rtt_s = constant(PROFILE_V), PROFILE_V.rtt_s
    bytes_per_s = 40e6 / 8 * HEADERS_LEAVE
    curve = [(rtt_s + second, round(second * bytes_per_s)) for second in range(10)]
    one = loaded(trace, Load(rtt_s + 9, rtt_s), curve)
    assert one.goodput_percent == pytest.approx(100, abs=0.01)


def test_goodput_counts_the_link_a_way_before_the_client() -> None:
    steps = [Step(0.0, 10_000_000, 500.0), Step(5.0, 20_000_000, 500.0)]
    trace = Trace("t", "a test", 10.0, steps, steps)
    # Between 5 and 6 s the client receives what the link carried from 4.5 to 5.5 s: 15 Mbit.
    one = loaded(trace, Load(6.0, 5.0), [(5.0, 0), (6.0, round(15e6 / 8 * HEADERS_LEAVE))])
    assert one.goodput_percent == pytest.approx(100, abs=0.01)


def test_percentiles_leave_out_what_is_before_the_load_counts() -> None:
    one = loaded(constant(PROFILE_V), Load(10.0, 2.0), [])
    samples = [(1.9, 1000.0), *((2.0 + place / 10, float(place)) for place in range(21))]
    assert one.p95(samples) == 19.0


def test_of_the_queue_the_most_of_each_quarter_second_is_kept() -> None:
    assert each_quarter_second([]) == []
    assert each_quarter_second([1.0] * 30 + [7.0] + [2.0] * 20) == [1.0, 7.0, 2.0]


def test_a_run_that_moved_nothing_has_goodput_0_and_no_queue() -> None:
    load, beside = Load(10.0, 2.0), [(5.0, 1.0)]
    one = dataclasses.replace(
        loaded(constant(PROFILE_V), load, [(3.0, 0), (9.0, 1_000_000)]),
        echoes=beside,
        smalls=beside,
        queue=[(5.0, 70.0)],
    )
    still = dataclasses.replace(one, bulk=Transfer(10**12), queue=[(5.0, 0.0)])
    result, second = Result("fade"), cast("Any", SimpleNamespace(name="underpass-second"))
    add_records(result, "fade", cast("Any", SimpleNamespace(name="underpass")), [one, still])
    add_records(result, "fade", second, [still])
    of = {(made.id, made.subject): made for made in result.records}
    assert of["fade.queue", "underpass"].values == [70.0]
    assert of["fade.goodput", "underpass"].values[1] == 0.0
    assert of["fade.echo", "underpass-second"].n == 1
    assert ("fade.queue", "underpass-second") not in of
    assert [count for note, count in result.notes.items() if "moved nothing" in note] == [1, 1]


def test_resumption_is_counted_from_the_end_of_each_blockage() -> None:
    steps = [Step(0.0, 10_000_000, 10.0)]
    trace = Trace("t", "a test", 10.0, steps, steps, [(1.0, 0.5), (3.0, 1.0)])
    curve = [(0.9, 1), (1.51, 2), (1.53, 3), (4.1, 4)]
    assert resumptions(loaded(trace, Load(10.0, 0.02), curve)) == pytest.approx([0.5, 5.0])
