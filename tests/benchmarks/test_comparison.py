from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.benchmarks import comparison
from tests.benchmarks.campaign.manifest import CampaignError
from tests.benchmarks.campaign.plan import CAMPAIGN
from tests.benchmarks.comparison import LIMITS, RUNS, Comparison, Row, Side, judged, order
from tests.benchmarks.experiments import EXPERIMENTS
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.records import Result, record


def compared(experiments: list[str], pairs: int = 4) -> Comparison:
    return Comparison(
        id="now",
        commits={"base": "1" * 40, "head": "2" * 40},
        programs={"base": {"underpass": "00"}, "head": {"underpass": "01"}},
        experiments=experiments,
        pairs=pairs,
        seed=7,
        idle_s=5.0,
    )


class Machine:
    """Runs whose values are given: by side and figure."""

    def __init__(
        self, folder: Path, values: Mapping[Side, Mapping[str, list[float]]], campaign: str = "now"
    ) -> None:
        self.folder, self.values, self.campaign = folder, values, campaign
        self.course: list[tuple[str, Side, int]] = []

    def measure(self, side: Side, pair: int, experiment: str, seed: int) -> Path:
        self.course.append((experiment, side, seed))
        records = [
            record(figure, "underpass", values) for figure, values in self.values[side].items()
        ]
        return Result(experiment, records, campaign=self.campaign).save(
            self.folder / f"{pair}-{side}"
        )


def row(base: list[list[float]], head: list[list[float]], figure: str = "object-8mb.g") -> Row:
    return Row(figure, "underpass", LIMITS[figure], base, head)


def test_sides_take_turns_and_a_pair_has_one_seed(tmp_path: Path) -> None:
    values = {"object-1mb.g": [0.7]}
    machine = Machine(tmp_path, {"base": values, "head": values})
    of = compared(["object-1mb", "object-8mb"], pairs=3)
    of.run(machine.measure, tmp_path / "comparison.json")
    sides = [side for experiment, side, _ in machine.course if experiment == "object-1mb"]
    assert sides == ["base", "head", "head", "base", "base", "head"]
    seeds = [seed for experiment, _, seed in machine.course if experiment == "object-1mb"]
    # No two pairs have a run of the same seed.
    assert seeds == [7, 7, 7 + 5, 7 + 5, 7 + 10, 7 + 10]
    assert [order(pair)[0] for pair in range(3)] == ["base", "head", "base"]


def test_a_ratio_above_one_is_worse_whichever_way_is_better() -> None:
    assert row([[2.0]], [[3.0]]).ratios() == [1.5]
    assert row([[90.0]], [[60.0]], "bulk-200mb.g").ratios() == [1.5]


def test_each_pair_counts_once_by_the_medians_of_its_runs() -> None:
    of = row([[1.0, 2.0, 9.0], [4.0]], [[1.0, 1.0, 1.0], [4.0]])
    assert of.ratios() == [0.5, 1.0]


def test_an_echo_is_compared_with_its_round_trip() -> None:
    assert row([[10.0]], [[67.0]], "echo.v").ratios() == [pytest.approx(1.1)]


def test_what_moves_nothing_is_the_worst_and_no_ratio_if_neither_did() -> None:
    goodputs = row([[90.0], [0.0], [0.0]], [[0.0], [90.0], [0.0]], "bulk-200mb.g")
    assert goodputs.ratios() == [math.inf, 0.0]
    assert row([[0.0]], [[0.0]], "bulk-200mb.g").verdict() is None


def test_ten_pairs_have_the_sign_tests_interval() -> None:
    verdict = judged([1.0 + place / 1000 for place in range(10)], 1.01)
    assert verdict
    assert verdict.median == pytest.approx(1.0045)
    # All but the least and the greatest: 1 - 2 (1 + 10) / 2^10.
    assert (verdict.low, verdict.high) == (1.001, 1.008)
    assert verdict.confidence == pytest.approx(1 - 22 / 1024)


@pytest.mark.parametrize(("pairs", "confidence"), [(1, 0.0), (2, 0.5), (5, 0.9375), (6, 0.96875)])
def test_few_pairs_give_the_whole_range_and_say_how_little_it_is_worth(
    pairs: int, confidence: float
) -> None:
    ratios = [1.0 + place for place in range(pairs)]
    verdict = judged(ratios, 1.01)
    assert verdict
    assert (verdict.low, verdict.high, verdict.confidence) == (1.0, ratios[-1], confidence)


@pytest.mark.parametrize(
    ("ratios", "met", "certain"),
    [
        ([0.99] * 10, True, True),
        ([1.01] * 10, True, True),
        ([1.011] * 10, False, True),
        ([*[1.0] * 6, *[1.02] * 4], True, False),
        ([*[1.0] * 4, *[1.02] * 6], False, False),
        # One of ten may be anything.
        ([*[1.0] * 9, math.inf], True, True),
    ],
)
def test_the_median_is_judged_and_the_interval_says_how_certain_that_is(
    ratios: list[float], met: bool, certain: bool
) -> None:
    verdict = judged(ratios, 1.01)
    assert verdict
    assert (verdict.met, verdict.certain) == (met, certain)


def test_what_is_written_has_both_commits_and_every_run(tmp_path: Path) -> None:
    values: dict[Side, dict[str, list[float]]] = {
        "base": {"object-1mb.g": [0.7, 0.8], "loopback-cost-1.cpu": [2.0]},
        "head": {"object-1mb.g": [0.7, 0.9], "loopback-cost-1.cpu": [2.2]},
    }
    of, path = compared(["object-1mb"]), tmp_path / "comparison.json"
    of.run(Machine(tmp_path, values).measure, path)
    written = json.loads(path.read_text())
    assert written["commits"] == {"base": "1" * 40, "head": "2" * 40}
    assert written["first of each pair"] == ["base", "head", "base", "head"]
    object_, cost = written["rows"]
    assert object_["base"] == [[0.7, 0.8]] * 4
    assert object_["head"] == [[0.7, 0.9]] * 4
    assert not object_["verdict"]["met"]
    assert (cost["limit"], cost["unit"], cost["verdict"]["met"]) == (1.03, "ms/MB", False)
    assert not of.met()
    assert "MISSED  1.1000 of 1111111's" in of.lines()[1]
    assert "Processor time" in of.lines()[1]


def test_a_verdict_without_end_is_written_as_strict_json(tmp_path: Path) -> None:
    values: dict[Side, dict[str, list[float]]] = {
        "base": {"bulk-200mb.g": [90.0]},
        "head": {"bulk-200mb.g": [0.0]},
    }
    path = tmp_path / "comparison.json"
    compared(["bulk-200mb"]).run(Machine(tmp_path, values).measure, path)
    assert "Infinity" not in path.read_text()
    (bulk,) = json.loads(path.read_text())["rows"]
    assert (bulk["verdict"]["median"], bulk["verdict"]["met"]) == (None, False)


def test_runs_of_another_campaign_are_refused(tmp_path: Path) -> None:
    values = {"object-1mb.g": [0.7]}
    machine = Machine(tmp_path, {"base": values, "head": values}, campaign="before")
    with pytest.raises(CampaignError, match="campaign before, not now"):
        compared(["object-1mb"]).run(machine.measure, tmp_path / "comparison.json")


@pytest.mark.parametrize("head", [{}, {"loopback-cost-1.cpu": [2.0]}])
def test_sides_that_measured_different_figures_are_refused(
    tmp_path: Path, head: dict[str, list[float]]
) -> None:
    machine = Machine(tmp_path, {"base": {"loopback-cost-1.instructions": [1e6]}, "head": head})
    with pytest.raises(CampaignError, match="loopback-cost-1"):
        compared(["loopback-cost"]).run(machine.measure, tmp_path / "comparison.json")


def test_an_interruption_leaves_the_pairs_before_it(tmp_path: Path) -> None:
    values = {"object-1mb.g": [0.7]}
    machine = Machine(tmp_path, {"base": values, "head": values})

    def interrupted(side: Side, pair: int, experiment: str, seed: int) -> Path:
        if pair == 2:
            raise KeyboardInterrupt
        return machine.measure(side, pair, experiment, seed)

    path = tmp_path / "comparison.json"
    with pytest.raises(KeyboardInterrupt):
        compared(["object-1mb"]).run(interrupted, path)
    (of_object,) = json.loads(path.read_text())["rows"]
    assert len(of_object["base"]) == len(of_object["head"]) == 2


def test_every_experiment_and_figure_that_is_compared_is_known() -> None:
    assert RUNS.keys() <= EXPERIMENTS.keys()
    assert LIMITS.keys() <= FIGURES.keys()
    # The way of the data is measured on the same links as in a campaign.
    assert RUNS.keys() - {entry.name for entry in CAMPAIGN} == {"loopback-cost"}


def test_a_commits_programs_are_built_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def do(*command: str, cwd: Path) -> None:
        done.append(" ".join(command[:2]))
        if command[:3] == ("git", "worktree", "add"):
            tree = Path(command[-2])
            tree.mkdir(parents=True)
            (tree / ".git").write_text("")
        if command[0] == "cargo":
            assert cwd == tmp_path / "tree"
            made = tmp_path / "build" / "release"
            made.mkdir(parents=True, exist_ok=True)
            for name in ("underpass", "satlink"):
                (made / name).write_text(f"{len(done)}")

    def rustc(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 0, stdout=b"rustc 1")

    monkeypatch.setattr(comparison, "_BUILT", tmp_path)
    monkeypatch.setattr(comparison, "_do", do)
    monkeypatch.setattr(subprocess, "run", rustc)
    first = comparison.programs_of("a" * 40)
    second = comparison.programs_of("b" * 40)
    assert done == ["git worktree", "git worktree", "cargo build", "git checkout", "cargo build"]
    assert (first / "underpass").read_text() == "3"
    assert (second / "underpass").read_text() == "5"
    assert comparison.programs_of("a" * 40) == first
    assert len(done) == 5


class Ended:
    """An experiment's process that has ended."""

    def __init__(self, status: int) -> None:
        self.status = status

    def wait(self) -> int:
        return self.status

    def poll(self) -> int:
        return self.status


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have programs of two commits; return the folder of results."""

    def programs_of(commit: str) -> Path:
        kept = tmp_path / "programs" / commit
        kept.mkdir(parents=True)
        for name in ("underpass", "satlink"):
            (kept / name).write_text(f"{name} of {commit}")
        return kept

    monkeypatch.setattr(comparison, "programs_of", programs_of)
    monkeypatch.setattr(comparison, "clean_commit", lambda: "2222222")
    monkeypatch.setattr(comparison, "git", lambda *_: "1111111")
    return tmp_path / "compare"


def test_each_side_has_its_own_programs_and_both_the_same_emulator(
    commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[tuple[str, str]] = []

    def started(experiment: str, options: Sequence[str], log: Path, programs: Path) -> Ended:
        told = dict(zip(options[::2], options[1::2], strict=True))
        measured.append(((programs / "underpass").read_text(), (programs / "satlink").read_text()))
        made = record("echo.v", "underpass", [10.0])
        Result(experiment, [made], campaign=told["--campaign"]).save(Path(told["--into"]))
        log.write_text("")
        return Ended(0)

    monkeypatch.setattr(comparison, "started", started)
    assert comparison.compare("HEAD^", ["echo"], 2, seed=1, idle_s=0.0, results=commits)
    base, head = "underpass of 1111111", "underpass of 2222222"
    assert [underpass for underpass, _ in measured] == [base, head, head, base]
    assert {satlink for _, satlink in measured} == {"satlink of 2222222"}
    (path,) = commits.glob("*/comparison.json")
    written = json.loads(path.read_text())
    assert written["commits"] == {"base": "1111111", "head": "2222222"}
    of_base, of_head = written["programs"]["base"], written["programs"]["head"]
    assert of_base["satlink"] == of_head["satlink"]
    assert of_base["underpass"] != of_head["underpass"]


def test_a_run_that_fails_ends_the_comparison(
    commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "started", lambda *_: Ended(1))
    with pytest.raises(CampaignError, match=r"programs of base: see .*01-base-echo\.log"):
        comparison.compare("HEAD^", ["echo"], 2, seed=1, idle_s=0.0, results=commits)


def test_a_commit_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "clean_commit", lambda: "1" * 40)
    monkeypatch.setattr(comparison, "git", lambda *_: "")
    with pytest.raises(CampaignError, match="no commit 'nowhere'"):
        comparison.compare("nowhere", ["echo"], 1, seed=1, idle_s=0.0, results=tmp_path / "compare")
    assert not (tmp_path / "compare").exists()
