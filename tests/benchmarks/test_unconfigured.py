from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.benchmarks.bench import Bench, Settings
from tests.benchmarks.experiments import unconfigured
from tests.benchmarks.records import Result
from tests.benchmarks.report import report
from tests.benchmarks.subjects import Access, Subject
from tests.testbed.client.transfer import Transfer


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


def test_downloads_that_bring_nothing_are_samples_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on = cast("Bench", SimpleNamespace(drain=lambda: True))
    access = cast("Access", SimpleNamespace(download=lambda size, *_: Transfer(size)))

    def one(_: Result, of: Any, start: str, seed: int, __: Settings, ___: Subject) -> None:
        of.measure(start, on, access, seed)
        if start == "first":
            of.measure("second", on, access, seed)

    monkeypatch.setattr(unconfigured, "_one", one)
    result = unconfigured.run(Settings(subjects=["underpass", "no-proxy-bbr"], runs=2))
    found = {(made.id, made.subject): made for made in result.records}
    small = found["unconfigured.first.8mb", "no-proxy-bbr"]
    assert (small.values, small.censored) == ([180.0, 180.0], 2)
    large = found["unconfigured.second.200mb", "underpass"]
    assert (large.values, large.censored) == ([0.0, 0.0], 2)
    assert found["unconfigured.second-to-told.8mb", "underpass"].values == [0.0, 0.0]
    result.save(tmp_path)
    assert "| underpass | not noted | 2 | 0 | 0 |  | no | 2 |" in report(tmp_path)
