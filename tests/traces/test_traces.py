from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.traces.made import MADE
from tests.traces.modcods import MODCODS, best
from tests.traces.oracle import oracle
from tests.traces.trace import FILES, Step, Trace


def made_of(
    *rates_mbps: tuple[float, float],
    loss: float = 0.0,
    blockages: tuple[tuple[float, float], ...] = (),
) -> Trace:
    steps = [Step(at_s, round(rate * 1e6), 50.0, loss) for at_s, rate in rates_mbps]
    return Trace("t", "a test", 10.0, steps, [Step(0.0, 1_000_000, 50.0)], blockages)


@pytest.mark.parametrize("name", MADE)
def test_files_are_what_their_formulas_give(name: str, tmp_path: Path) -> None:
    made = MADE[name]()
    kept = Trace.load(name)
    assert kept.document() == made.document()
    assert made.save(tmp_path).read_text() == (FILES / f"{name}.json").read_text()


def test_modcods_rise_and_are_at_most_a_decibel_apart() -> None:
    for low, high in itertools.pairwise(MODCODS):
        assert low.efficiency < high.efficiency
        assert 0 < high.threshold_db - low.threshold_db <= 1


def test_the_best_modcod_is_the_last_whose_threshold_is_reached() -> None:
    assert best(4.03).name == "QPSK 3/4"
    assert best(4.029).name == "QPSK 2/3"
    assert best(-10).name == "QPSK 2/9"


def test_the_fade_is_eight_to_one_with_no_step_above_a_decibel() -> None:
    rates = [step.rate_bps for step in MADE["geo-fade"]().forward]
    by_rate = {round(140e6 / MODCODS[-1].efficiency * one.efficiency): one for one in MODCODS}
    assert rates[0] == max(rates) == rates[-1] == 140_000_000
    assert 7.9 < max(rates) / min(rates) < 8.2
    for one, other in itertools.pairwise(rates):
        apart_db = by_rate[one].threshold_db - by_rate[other].threshold_db
        assert abs(apart_db) <= 1


def test_leo_and_mmwave_are_within_their_bounds() -> None:
    leo, mmwave = MADE["leo"](), MADE["mmwave"]()
    for step in leo.forward:
        assert 10e6 <= step.rate_bps <= 70e6
        assert 12.5 <= step.delay_ms <= 30
        assert 0.005 <= step.loss <= 0.06
    assert len(mmwave.blockages) > 10
    assert all(0.1 <= length <= 1 for _, length in mmwave.blockages)


def test_carried_bits_leave_out_losses_and_blockages() -> None:
    trace = made_of((0, 10), (4, 20), loss=0.1, blockages=((3.0, 2.0),))
    # 3 s at 10 Mbit/s, 2 s blocked, 5 s at 20 Mbit/s.
    assert trace.carried_bits("forward", 0, 10) == pytest.approx(0.9 * 130e6)
    assert trace.carried_bits("forward", 2.5, 5.5) == pytest.approx(0.9 * 15e6)
    assert trace.carried_bits("forward", 12, 13) == pytest.approx(0.9 * 20e6)


def test_the_oracle_of_a_constant_link_uses_all_of_it() -> None:
    found = oracle(made_of((0, 10)), "forward")
    assert found.part == pytest.approx(1.0)
    assert found.queue_p95_ms == 0


def test_the_oracle_misses_a_step_up_for_a_round_trip_and_its_lateness() -> None:
    found = oracle(made_of((0, 10), (5, 20)), "forward")
    # 300 ms at half of 20 Mbit/s, of 150 Mbit.
    assert found.part == pytest.approx(1 - 0.3 * 10 / 150, abs=0.001)


def test_the_oracle_drains_what_it_sent_too_fast_at_once() -> None:
    found = oracle(made_of((0, 20), (5, 10)), "forward")
    # 300 ms at 10 Mbit/s too much; the link is never without anything to send.
    assert found.part == pytest.approx(1.0, abs=0.001)
    # The queue stands for 600 ms of 10 s, up to 300 ms.
    assert 40 < found.queue_p95_ms < 60
