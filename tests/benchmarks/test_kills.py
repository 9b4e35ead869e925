from __future__ import annotations

from collections import Counter

from tests.benchmarks.experiments.kills import ON_DISK, unseen


def test_an_experiment_that_met_bytes_on_the_disk_has_looked_for_them() -> None:
    assert unseen(Counter({ON_DISK: 1})) == []


def test_an_experiment_that_met_none_on_the_disk_counts_as_a_violation() -> None:
    # The kills alone do not show it.
    assert len(unseen(Counter({"kills of the hub": 100, ON_DISK: 0}))) == 1
    assert len(unseen(Counter())) == 1
