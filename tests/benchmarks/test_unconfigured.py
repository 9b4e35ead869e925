from __future__ import annotations

import pytest

from tests.benchmarks.bench import Settings
from tests.benchmarks.experiments import unconfigured
from tests.benchmarks.records import Result
from tests.benchmarks.subjects import Subject


def test_subjects_take_turns_and_those_with_fewer_runs_meet_the_same_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[str, str, int]] = []

    def one(_: Result, __: object, start: str, seed: int, ___: Settings, subject: Subject) -> None:
        made.append((subject.name, start, seed))

    monkeypatch.setattr(unconfigured, "_one", one)
    settings = Settings(subjects=["underpass", "no-proxy-bbr"], runs=3, peer_runs=2, seed=7)
    unconfigured.run(settings)
    ours = [[("underpass", "first", seed), ("underpass", "told", seed)] for seed in (7, 8, 9)]
    peer = [("no-proxy-bbr", "first", seed) for seed in (7, 8)]
    assert made == [*ours[0], peer[0], *ours[1], peer[1], *ours[2]]
