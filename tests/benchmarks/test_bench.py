from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.benchmarks.bench import Bench, Series, Settings, spread
from tests.benchmarks.subjects import Access, Subject, underpass
from tests.testbed.profile import PERFECT, PROFILE_V


@dataclass(frozen=True)
class Took:
    last_byte_s: float | None


class Quiet(Bench):
    """A bench whose hop is always quiet."""

    def drain(self) -> bool:
        return True


class Named(Subject):
    told = "nothing"

    def __init__(self, name: str, course: list[str]) -> None:
        self.name, self.course = name, course

    def start(self, testbed: Any) -> None:
        del testbed

    def access(self, origin_port: int = 80) -> Access:
        del origin_port
        return cast("Access", self.name)

    def before_run(self) -> None:
        self.course.append(f"+{self.name}")

    def after_run(self) -> None:
        self.course.append(f"-{self.name}")


def in_turn(
    settings: Settings, one: Callable[[str, int, float], float | None]
) -> tuple[list[list[Took]], list[str]]:
    course: list[str] = []
    seeds: list[int] = []
    hop = SimpleNamespace(seed=seeds.append)
    bed = SimpleNamespace(satlink=hop, terrestrial=None, profile=PERFECT)
    on = Quiet(cast("Any", bed), dataclasses.replace(settings, idle_s=0.0))
    for name in ("underpass", "kcptun"):
        on.add_started(Named(name, course))
    series = [
        Series(each, lambda access, seed, limit: Took(one(str(access), seed, limit)))
        for each in on.subjects
    ]
    return on.in_turn(series, 4), course


def test_subjects_run_by_turns_with_the_same_seeds() -> None:
    met: list[tuple[str, int]] = []

    def one(name: str, seed: int, _limit: float) -> float:
        met.append((name, seed))
        return 1.0

    _, course = in_turn(Settings(seed=7, runs=2), one)
    assert met == [("underpass", 7), ("kcptun", 7), ("underpass", 8), ("kcptun", 8)]
    assert course == ["+underpass", "-underpass", "+kcptun", "-kcptun"] * 2


def test_fewer_runs_of_the_others_are_spread_over_the_rounds() -> None:
    met: list[int] = []

    def one(name: str, seed: int, _limit: float) -> float:
        if name == "kcptun":
            met.append(seed)
        return 1.0

    done, _ = in_turn(Settings(runs=10, peer_runs=2), one)
    assert [len(runs) for runs in done] == [10, 2]
    assert met == [1, 6]


def test_our_first_run_bounds_the_others_and_never_above_the_most() -> None:
    limits: list[float] = []

    def one(_name: str, _seed: int, limit: float) -> float:
        limits.append(limit)
        return 3.0

    in_turn(Settings(runs=2, cap_s=99.0, most_s=180.0), one)
    assert limits == [99.0, 30.0, 30.0, 30.0]
    limits.clear()
    in_turn(Settings(runs=1, cap_s=99.0, most_s=20.0), one)
    assert limits == [99.0, 20.0]


class Hop:
    """Virtual time, and a hop that carries so many bytes in each second."""

    def __init__(self, bytes_per_s: Callable[[float], float]) -> None:
        self.bytes_per_s = bytes_per_s
        self.now = self.carried = 0.0
        self.profile = PROFILE_V
        self.satlink = self
        self.terrestrial: Hop | None = None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.carried += seconds * self.bytes_per_s(self.now)
        self.now += seconds

    def statistics(self) -> dict[str, Any]:
        return _carried(self.carried)


def _carried(count: float) -> dict[str, Any]:
    way = {"bytes_in": count, "queue_bytes": 0}
    return {"terminals": {"t0": {"forward": way, "return": way}}}


def drained(monkeypatch: pytest.MonkeyPatch, hop: Hop) -> bool:
    monkeypatch.setattr("tests.benchmarks.bench.time", hop)
    return Bench(cast("Any", hop), Settings()).drain()


def test_a_run_waits_until_the_hop_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    # An upload that goes on after its run, at the link's rate.
    hop = Hop(lambda at: 250_000 if at < 100 else 1_000)
    assert drained(monkeypatch, hop)
    assert 100 < hop.now < 102


def test_a_run_waits_for_the_hop_beside_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    hop = Hop(lambda _: 0)
    hop.terrestrial = Hop(lambda _: 0)
    beside = iter(range(0, 10_000_000, 1_000_000))
    monkeypatch.setattr(hop.terrestrial, "statistics", lambda: _carried(next(beside, 9_000_000)))
    assert drained(monkeypatch, hop)
    assert hop.now > 9 * PROFILE_V.rtt_s


def test_a_hop_that_never_falls_quiet_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not drained(monkeypatch, Hop(lambda _: 250_000))


@pytest.mark.parametrize(
    ("count", "rounds", "where"),
    [(0, 5, set()), (1, 5, {0}), (2, 5, {0, 2}), (5, 5, {0, 1, 2, 3, 4}), (5, 10, {0, 2, 4, 6, 8})],
)
def test_runs_are_spread_evenly(count: int, rounds: int, where: set[int]) -> None:
    assert spread(count, rounds) == where


def test_ours_is_measured_on_its_second_start_beside_the_first() -> None:
    class Noted(Bench):
        def add(self, subject: Subject) -> None:
            self.add_started(subject)

    on = Noted(cast("Any", None), Settings(subjects=["underpass", "no-proxy-bbr"]))
    on.start_untold("hints")
    first, second, _ = on.subjects
    assert [subject.name for subject in on.subjects] == [
        "underpass",
        "underpass-second",
        "no-proxy-bbr",
    ]
    assert second.told.startswith(first.told)
    assert second.told != first.told


def test_a_second_start_has_measured_once_and_is_made_before_each_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    course: list[str] = []

    def step(name: str) -> Callable[..., None]:
        return lambda *_: course.append(name)

    monkeypatch.setattr(underpass, "set_end_to_end", step("cubic"))
    second = underpass.SecondStart("nothing")
    second.pair = cast("Any", SimpleNamespace(stop=step("stop"), start_again=step("start")))
    second._testbed = cast("Any", None)
    moved = SimpleNamespace(download=step("down"), upload=step("up"))
    monkeypatch.setattr(second, "access", lambda: moved)
    second.before_run()
    second.before_run()
    restarted = ["stop", "start"]
    assert course == ["cubic", "down", "up", *restarted, "cubic", *restarted]
