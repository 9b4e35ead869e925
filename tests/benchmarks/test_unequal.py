from __future__ import annotations

import pytest

from tests.benchmarks.experiments.unequal import (
    LTE_AND_GEO,
    Pair,
    hop,
    mirrored_pairs,
    pairs,
    usable_bps,
)


def test_the_ideal_time_carries_the_size_and_no_more() -> None:
    for pair in (LTE_AND_GEO, *pairs(), *mirrored_pairs()):
        for size in (10_000, 1_000_000, 200_000_000):
            at = pair.ideal_s(size)
            carried = sum(
                usable_bps(one) * max(0.0, at - one.rtt_s) / 8 for one in (pair.near, pair.far)
            )
            assert carried == pytest.approx(size)


def test_what_is_done_before_the_far_path_begins_does_not_use_it() -> None:
    pair = Pair(near=hop("near", 40_000_000, 40.0), far=hop("far", 40_000_000, 800.0))
    assert pair.ideal_s(100_000) == pytest.approx(0.04 + 800_000 / usable_bps(pair.near))


def test_there_are_sixteen_pairs_and_no_two_are_alike() -> None:
    found = [
        (pair.far.forward.rate_bps, pair.far.rtt_ms, pair.far.forward.loss) for pair in pairs()
    ]
    assert len(found) == len(set(found)) == 16
    assert {loss for _, _, loss in found} == {0.0, 0.005, 0.01, 0.02}


def test_mirrored_pairs_have_their_better_path_far_away() -> None:
    found = list(mirrored_pairs())
    assert len(found) == 9
    for pair in found:
        assert pair.better == "satellite"
        assert pair.near.rtt_ms < pair.far.rtt_ms
        assert pair.near.forward.loss == 0
