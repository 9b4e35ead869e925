from __future__ import annotations

import pytest

from tests.benchmarks import subjects
from tests.benchmarks.campaign.plan import (
    BY_HAND,
    CAMPAIGN,
    LIMIT_S,
    VOLUMES,
    Entry,
    chosen,
    duration_s,
    startable,
)
from tests.benchmarks.experiments import EXPERIMENTS


def test_a_campaign_has_every_experiment_once_but_those_by_hand() -> None:
    names = [entry.name for entry in CAMPAIGN]
    assert sorted([*names, *BY_HAND]) == sorted(EXPERIMENTS)


def test_every_experiment_is_in_one_volume() -> None:
    names = [name for volume in VOLUMES.values() for name in volume]
    assert sorted(names) == sorted(entry.name for entry in CAMPAIGN)


@pytest.mark.parametrize("volume", VOLUMES)
def test_a_campaign_keeps_its_limit(volume: str) -> None:
    assert duration_s(chosen(VOLUMES[volume])) <= LIMIT_S


def test_every_subject_is_known_and_ours_is_first() -> None:
    for entry in CAMPAIGN:
        assert set(entry.subjects) <= set(subjects.NAMES)
        assert entry.subjects[0] == "underpass"


@pytest.mark.parametrize(
    ("ours_s", "peer_s", "runs", "peer_runs"),
    [(29.9, 29.9, 10, 5), (30.0, 30.0, 5, 2), (119.0, 500.0, 5, 2), (120.0, 1.0, 3, 5)],
)
def test_short_runs_are_made_more_often(
    ours_s: float, peer_s: float, runs: int, peer_runs: int
) -> None:
    entry = Entry("one", ours_s, peer_s, ("underpass", "kcptun"))
    assert (entry.runs, entry.peer_runs) == (runs, peer_runs)


def test_a_second_start_takes_its_time_in_the_plan() -> None:
    without = Entry("one", 10.0, 10.0, ("underpass", "kcptun"))
    both = Entry("one", 10.0, 10.0, ("underpass", "kcptun"), added=1)
    assert both.expected_s > without.expected_s + both.peer_runs * both.ours_s


def test_a_trial_has_fewer_runs_and_at_least_one() -> None:
    [entry] = chosen(["bulk-1gb"], 0.1)
    assert (entry.runs, entry.peer_runs) == (1, 1)
    assert entry.expected_s < chosen(["bulk-1gb"], 1.0)[0].expected_s


def test_what_needs_the_whole_machine_runs_alone() -> None:
    alone, light = Entry("alone", 1.0), Entry("light", 1.0, share=0.25)
    assert startable([alone, light], [], None) is alone
    assert startable([alone, light], [alone], None) is None
    assert startable([alone, light], [light], None) is light
    assert startable([light], [light] * 4, None) is None


def test_a_portion_begins_only_what_it_can_end() -> None:
    long, short = Entry("long", 100.0), Entry("short", 1.0)
    assert startable([long, short], [], long.expected_s - 1) is short
    assert startable([long, short], [], 1.0) is None


def test_the_time_left_counts_what_runs_beside_each_other_once() -> None:
    light = [Entry(f"light-{place}", 0.0, fixed_s=10.0, share=0.25) for place in range(5)]
    each_s = light[0].expected_s
    assert duration_s(light) == 2 * each_s
    assert duration_s(light[:1], [(light[1], 3.0)]) == each_s
    assert duration_s([], [(light[1], 3.0)]) == 3.0
