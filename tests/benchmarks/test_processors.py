"""Tests of the machine's processor load."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.processors import Processors


def test_idle_and_stolen_time_are_parts_of_all_that_has_passed(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 1000 10 0 0 5 7 0\ncpu0 1 2 3 4\n")
    processors = Processors(stat)
    # 50 busy, 30 idle, 10 waiting for a disk, 10 stolen; user time includes guest time.
    stat.write_text("cpu  140 0 60 1030 20 0 0 15 40 0\ncpu0 1 2 3 4\n")
    assert processors.told() == "idle 40 %, taken by other machines 10 %"
    assert processors.idle() == 0.4


def test_this_machine_tells_it() -> None:
    assert Processors().told().startswith("idle ")
