from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.benchmarks.campaign.course import (
    Course,
    begun_or_resumed,
    broken_off_by_signals,
    is_there,
    replace_volume,
)
from tests.benchmarks.campaign.manifest import (
    CampaignError,
    Manifest,
    check_unchanged,
    described,
    load_manifest,
    made_now,
)
from tests.benchmarks.campaign.plan import Entry
from tests.benchmarks.records import Result

_ENTRIES = tuple(Entry(name, 10.0, fixed_s=0.0) for name in ("first", "second", "third"))
_LIGHT = tuple(dataclasses.replace(entry, share=0.25) for entry in _ENTRIES)


def manifest(**changed: object) -> Manifest:
    made = Manifest(
        id="now-abc",
        commit="abc",
        programs={"underpass": "00"},
        machine={"kernel": "6.1"},
        peers={},
        experiments={entry.name: described(entry) for entry in _ENTRIES},
        seed=1,
        trial=False,
        started="2026-01-01T00:00:00Z",
    )
    return dataclasses.replace(made, **changed)  # type: ignore[arg-type]


class Machine:
    """Virtual time, and experiments that take as long as expected and save a result."""

    def __init__(self, folder: Path, campaign: str = "now-abc") -> None:
        self.folder, self.campaign, self.now = folder, campaign, 0.0
        self.launched: list[str] = []
        self.terminated: list[str] = []
        self.breaks: set[str] = set()
        self.at: list[tuple[float, Callable[[], None]]] = []
        # The idle part of its processors.
        self.idle = 1.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due, then in [one for one in self.at if one[0] <= self.now]:
            self.at.remove((due, then))
            then()

    def launch(self, entry: Entry) -> _Child:
        self.launched.append(entry.name)
        return _Child(self, entry)

    def course(
        self,
        portion_s: float | None = None,
        begun: Manifest | None = None,
        entries: Sequence[Entry] = _ENTRIES,
    ) -> Course:
        return Course(
            self.folder,
            begun or begun_or_resumed(self.folder, manifest(), anew=False),
            entries,
            self.launch,
            portion_s=portion_s,
            clock=lambda: self.now,
            sleep=self.sleep,
            watch=lambda: lambda: self.idle,
        )


class _Child:
    def __init__(self, machine: Machine, entry: Entry) -> None:
        self._machine, self._entry = machine, entry
        self._end = machine.now + entry.expected_s
        self._saved = self._dead = False

    def poll(self) -> int | None:
        if self._dead:
            return 143
        if self._machine.now < self._end:
            return None
        if self._entry.name in self._machine.breaks:
            return 1
        if not self._saved:
            Result(self._entry.name, campaign=self._machine.campaign).save(self._machine.folder)
            self._saved = True
        return 0

    def terminate(self) -> None:
        self._machine.terminated.append(self._entry.name)
        self._dead = True

    def wait(self, timeout: float | None = None) -> int:
        del timeout
        return 143

    def kill(self) -> None:
        raise AssertionError("it ended when it was asked")


def test_a_campaign_is_complete_when_every_experiment_is_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.course().run()
    assert machine.launched == ["first", "second", "third"]
    saved = load_manifest(tmp_path)
    assert saved
    assert saved.ended
    assert len(saved.portions) == 1


def test_a_portion_ends_in_time_and_the_next_one_goes_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    each_s = _ENTRIES[0].expected_s
    machine.course(portion_s=2.5 * each_s).run()
    assert machine.launched == ["first", "second"]
    between = load_manifest(tmp_path)
    assert between
    assert between.ended is None
    machine.course(portion_s=2.5 * each_s).run()
    assert machine.launched == ["first", "second", "third"]
    saved = load_manifest(tmp_path)
    assert saved
    assert saved.ended
    assert len(saved.portions) == 2


def test_a_portion_too_short_for_anything_does_one_experiment(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.course(portion_s=1.0).run()
    assert machine.launched == ["first"]


def test_what_was_broken_off_is_measured_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    course = machine.course()
    machine.at.append((1.5 * _ENTRIES[0].expected_s, course.stop))
    course.run()
    assert machine.terminated == ["second"]
    machine.course().run()
    assert machine.launched == ["first", "second", "second", "third"]


def test_a_campaign_whose_last_experiment_is_broken_off_is_not_complete(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    course = machine.course()
    machine.at.append((2.5 * _ENTRIES[0].expected_s, course.stop))
    course.run()
    assert machine.terminated == ["third"]
    between = load_manifest(tmp_path)
    assert between
    assert between.ended is None
    machine.course().run()
    assert machine.launched == ["first", "second", "third", "third"]
    saved = load_manifest(tmp_path)
    assert saved
    assert saved.ended


def test_what_fails_does_not_stop_the_rest_and_is_tried_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.breaks = {"second"}
    course = machine.course()
    course.run()
    assert course.failed == ["second"]
    between = load_manifest(tmp_path)
    assert between
    assert between.ended is None
    machine.breaks = set()
    machine.course().run()
    assert machine.launched == ["first", "second", "third", "second"]


def test_the_time_left_shrinks_as_experiments_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    course = machine.course()
    each_s = _ENTRIES[0].expected_s
    assert course.remaining_s() == 3 * each_s
    left: list[float] = []
    machine.at.append((1.5 * each_s, lambda: left.append(course.remaining_s())))
    course.run()
    assert left[0] == pytest.approx(1.5 * each_s, abs=1.0)
    assert course.remaining_s() == 0


@pytest.mark.parametrize(("idle", "beside"), [(0.3, True), (0.2, False)])
def test_what_is_light_begins_beside_others_where_processors_are_idle(
    tmp_path: Path, idle: float, beside: bool
) -> None:
    machine = Machine(tmp_path)
    machine.idle = idle
    begun: list[int] = []
    each_s = _LIGHT[0].expected_s
    machine.at.append((each_s - 1, lambda: begun.append(len(machine.launched))))
    machine.course(entries=_LIGHT).run()
    assert begun == [3 if beside else 1]
    assert machine.launched == ["first", "second", "third"]


def test_what_waited_for_others_is_measured_again_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.idle = 0.3
    each_s = _LIGHT[0].expected_s

    def load(idle: float) -> Callable[[], None]:
        return lambda: setattr(machine, "idle", idle)

    # The first one ends before the others load the machine.
    machine.at += [(each_s + 5, load(0.0)), (each_s + 45, load(1.0))]
    machine.course(entries=_LIGHT).run()
    assert machine.launched == ["first", "second", "third", "second", "third"]
    assert machine.now >= 3 * each_s
    saved = load_manifest(tmp_path)
    assert saved
    assert saved.ended


def test_what_loads_the_machine_by_itself_is_measured_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.idle = 0.0
    machine.course(entries=_LIGHT).run()
    assert machine.launched == ["first", "second", "third"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_breaks_a_course_off_in_order(tmp_path: Path, sent: signal.Signals) -> None:
    machine = Machine(tmp_path)
    course = machine.course()
    machine.at.append((1.0, lambda: os.kill(os.getpid(), sent)))
    with broken_off_by_signals(course):
        course.run()
    assert machine.terminated == ["first"]


@pytest.mark.parametrize(
    "changed",
    [
        {"commit": "def"},
        {"programs": {"underpass": "01"}},
        {"machine": {"kernel": "6.2"}},
        {"peers": {"kcptun": "2"}},
        {"experiments": {}},
        {"seed": 2},
        {"trial": True},
    ],
)
def test_nothing_else_is_gone_on_with(tmp_path: Path, changed: dict[str, object]) -> None:
    begun_or_resumed(tmp_path, manifest(), anew=False)
    with pytest.raises(CampaignError, match=next(iter(changed))):
        begun_or_resumed(tmp_path, manifest(**changed), anew=False)
    fresh = manifest(**changed)
    assert begun_or_resumed(tmp_path, fresh, anew=True) == fresh


def test_another_campaigns_result_is_not_taken_for_done(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    begun = begun_or_resumed(tmp_path, manifest(), anew=False)
    Result("second", campaign="another").save(tmp_path)
    with pytest.raises(CampaignError, match="another"):
        machine.course(begun=begun)


def test_a_tree_with_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"status": " M README.md", "rev-parse": "abc"}
    monkeypatch.setattr("tests.benchmarks.campaign.manifest.git", lambda verb, *_: told[verb])
    with pytest.raises(CampaignError, match="README"):
        made_now(_ENTRIES, seed=1, trial=False)


def test_what_a_volume_has_written_is_no_change_and_all_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = (Path("README.md"), Path("tests/benchmarks/results/data/REPORT.md"))
    read = Path("tests/benchmarks/bench.py")

    def git(*arguments: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *names, *arguments], check=True)

    def write(text: str, *paths: Path) -> None:
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

    of = "tests.benchmarks"
    monkeypatch.setattr(f"{of}.records.RESULTS", tmp_path / "tests" / "benchmarks" / "results")
    monkeypatch.setattr(f"{of}.campaign.manifest.sha256", lambda _: "00")
    monkeypatch.setattr(f"{of}.campaign.manifest.built", lambda name: name)
    git("init", "--quiet")
    write("1", *written, read)
    git("add", "--all")
    git("commit", "--quiet", "--message", "first")
    write("2", *written, written[1].with_name("new.json"))
    begun = made_now(_ENTRIES, seed=1, trial=False)
    check_unchanged(begun)
    write("2", read)
    with pytest.raises(CampaignError, match=r"bench\.py"):
        check_unchanged(begun)


@pytest.mark.parametrize(
    ("changed", "there"),
    [({}, True), ({"commit": "def"}, False), ({"programs": {}}, False), ({"seed": 2}, False)],
)
def test_a_volume_is_there_if_it_would_be_measured_the_same_way(
    tmp_path: Path, changed: dict[str, object], there: bool
) -> None:
    assert not is_there(tmp_path, manifest())
    manifest().save(tmp_path)
    assert not is_there(tmp_path, manifest())
    manifest(ended="2026-01-01T01:00:00Z").save(tmp_path)
    assert is_there(tmp_path, manifest(started="2026-01-02T00:00:00Z", **changed)) is there


@pytest.mark.parametrize(
    ("now", "word"),
    [
        ({}, None),
        ({"status": " M tests/benchmarks/bench.py"}, "bench.py"),
        ({"rev-parse": "def"}, "def"),
        ({"sha256": "01"}, "01"),
    ],
)
def test_no_experiment_is_started_on_another_tree_or_with_other_programs(
    monkeypatch: pytest.MonkeyPatch, now: dict[str, str], word: str | None
) -> None:
    told = {"status": "", "rev-parse": "abc", "sha256": "00"} | now
    of = "tests.benchmarks.campaign.manifest"
    monkeypatch.setattr(f"{of}.git", lambda verb, *_: told[verb])
    monkeypatch.setattr(f"{of}.sha256", lambda _: told["sha256"])
    monkeypatch.setattr(f"{of}.built", lambda name: name)
    begun = manifest(programs={"underpass": "00", "satlink": "00"})
    if word is None:
        check_unchanged(begun)
        return
    with pytest.raises(CampaignError, match=word):
        check_unchanged(begun)


def test_an_experiment_that_is_refused_leaves_the_campaign_incomplete(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    course = machine.course()

    def refuse_the_last(entry: Entry) -> _Child:
        if entry.name == "third":
            raise CampaignError("another commit")
        return machine.launch(entry)

    course._launch = refuse_the_last
    with pytest.raises(CampaignError, match="another commit"):
        course.run()
    saved = load_manifest(tmp_path)
    assert saved
    assert saved.ended is None


def test_a_campaign_takes_the_place_of_its_volume_and_no_other(tmp_path: Path) -> None:
    results, aside = tmp_path / "results", tmp_path / "aside"
    (results / "links").mkdir(parents=True)
    (results / "links" / "leo.json").write_text("")
    # A result from before there were campaigns.
    for name in ("new-1.json", "new-1.samples.json", "other.json"):
        (results / name).write_text("")
    aside.mkdir()
    for number in range(2):
        campaign = tmp_path / "campaigns" / "data"
        (campaign / "logs").mkdir(parents=True)
        (campaign / "logs" / "first.log").write_text("")
        for name in (f"new-{number}.json", f"new-{number}.samples.json"):
            (campaign / name).write_text("")
        replace_volume(campaign, results, aside)
        assert {path.name for path in (results / "data").iterdir()} == {
            f"new-{number}.json",
            f"new-{number}.samples.json",
        }
        assert not campaign.exists()
    assert {path.name for path in results.iterdir()} == {"data", "links", "other.json"}
    assert (results / "links" / "leo.json").exists()
    assert (aside / "data-before" / "new-0.json").exists()
    assert [path.name for path in (aside / "data-logs").iterdir()] == ["first.log"]
