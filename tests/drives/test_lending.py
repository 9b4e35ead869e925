"""Lending by predictions, in the loop of predictor, planner, ledger and hub."""

from __future__ import annotations

import pytest

from dama.prediction import ObstructionMap
from tests.control_api.planning.beam import BEAM_BPS
from tests.drives.drive import Drive
from tests.drives.lending import Knows, Lent, lend
from tests.drives.synthetic import island_map, passage_of


@pytest.fixture(scope="module")
def through() -> Drive:
    return passage_of("Pass Road", lead_m=1_500.0, tail_m=800.0)


@pytest.fixture(scope="module")
def lent(through: Drive) -> dict[Knows, Lent]:
    known = island_map()
    return {knows: lend(known, through, knows) for knows in Knows}


def test_without_lending_a_vehicle_loses_its_time_in_the_tunnel(
    through: Drive, lent: dict[Knows, Lent]
) -> None:
    inside_ms = sum(one.exit_ms - one.entry_ms for one in through.covered)
    lost = lent[Knows.TIMES].vehicle_bits - lent[Knows.NOTHING].vehicle_bits
    assert lost == pytest.approx(BEAM_BPS / 4 * inside_ms / 1000, rel=0.1)


def test_lending_by_predictions_is_nearly_as_good_as_by_known_times(
    lent: dict[Knows, Lent],
) -> None:
    predicted, known = lent[Knows.PREDICTIONS], lent[Knows.TIMES]
    gain = predicted.vehicle_bits - lent[Knows.NOTHING].vehicle_bits
    assert gain >= 0.95 * (known.vehicle_bits - lent[Knows.NOTHING].vehicle_bits)
    assert predicted.others_bits >= 0.99 * known.others_bits


def test_all_that_was_lent_is_repaid(lent: dict[Knows, Lent]) -> None:
    assert max(one.debt_bits for one in lent.values()) == 0


def test_a_tunnel_that_is_on_no_map_is_not_lent_for(
    through: Drive, lent: dict[Knows, Lent]
) -> None:
    unknown = lend(ObstructionMap([]), through, Knows.PREDICTIONS)
    assert unknown.vehicle_bits < lent[Knows.NOTHING].vehicle_bits + BEAM_BPS // 10
    assert unknown.debt_bits == 0
