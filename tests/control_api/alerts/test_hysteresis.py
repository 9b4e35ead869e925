"""An alert that comes and goes is sent once, whichever process checks and whichever restarts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from underpass_control.alerts.hysteresis import Firing, Verdict, judge
from underpass_control.alerts.rules import Rule, RuleKind, Subject

EVERY_MS = 5_000
SUBJECT = Subject(1, 11, "")


def rule(for_s: int = 0, keep_firing_for_s: int = 0) -> Rule:
    return Rule(
        1,
        "silent",
        RuleKind.UNHEARD,
        60_000,
        for_ms=for_s * 1_000,
        keep_firing_for_ms=keep_firing_for_s * 1_000,
    )


@dataclass
class Kept:
    """The stored state and the messages sent; any process may make a check."""

    rules: dict[int, Rule]
    pending: dict[Subject, int] = field(default_factory=dict)
    firing: dict[int, Firing] = field(default_factory=dict)
    told: list[tuple[str, int]] = field(default_factory=list)

    def look(self, *, holds: bool, at_ms: int, quiet: bool = False) -> None:
        found = {SUBJECT: "wrong"} if holds and self.rules and not quiet else {}
        self.take(self.judge(found, at_ms, quiet=quiet), at_ms)

    def judge(
        self,
        found: dict[Subject, str],
        at_ms: int,
        *,
        quiet: bool = False,
        withheld: Collection[int] = (),
    ) -> Verdict:
        silent = {SUBJECT.terminal} if quiet else set()
        return judge(self.rules, found, self.pending, self.firing, silent, withheld, at_ms)

    def take(self, verdict: Verdict, at_ms: int) -> None:
        for subject in verdict.pend:
            self.pending.setdefault(subject, at_ms)
        for subject in verdict.forget:
            self.pending.pop(subject, None)
        for number in (*verdict.back, *verdict.gone):
            if number in self.firing:
                gone_ms = at_ms if number in verdict.gone else None
                self.firing[number] = Firing(self.firing[number].subject, gone_ms)
        for subject in verdict.fire:
            self.pending.pop(subject, None)
            if subject not in {one.subject for one in self.firing.values()}:
                self.firing[len(self.told) + 1] = Firing(subject, None)
                self.told.append(("firing", at_ms))
        for number in verdict.resolve:
            if self.firing.pop(number, None) is not None:
                self.told.append(("resolved", at_ms))

    def looks(self, *holds: bool) -> list[tuple[str, int]]:
        for number, one in enumerate(holds):
            self.look(holds=one, at_ms=number * EVERY_MS)
        return self.told


def test_without_times_each_look_counts() -> None:
    told = Kept({1: rule()}).looks(False, True, True, False, True)
    assert told == [("firing", 5_000), ("resolved", 15_000), ("firing", 20_000)]


def test_a_condition_that_comes_and_goes_is_one_alert() -> None:
    flapping = [True, False] * 50
    kept = Kept({1: rule(keep_firing_for_s=60)})
    assert kept.looks(*flapping) == [("firing", 0)]
    # The condition has been absent since the last check, at 495 s.
    for second in (500, 554, 555, 560):
        kept.look(holds=False, at_ms=second * 1_000)
    assert kept.told == [("firing", 0), ("resolved", 555_000)]


def test_a_condition_fires_once_it_has_held_for_its_time() -> None:
    flapping = Kept({1: rule(for_s=10)})
    assert flapping.looks(*([True, True, False] * 20)) == []
    assert flapping.pending == {}
    steady = Kept({1: rule(for_s=10)})
    assert steady.looks(True, True, True, True) == [("firing", 10_000)]
    assert steady.pending == {}


def test_processes_in_turn_and_one_that_starts_again_go_on_from_what_is_stored() -> None:
    kept = Kept({1: rule(for_s=60, keep_firing_for_s=60)})
    kept.look(holds=True, at_ms=0)
    # Only the stored state is left: no process has checked for a while.
    again = Kept(kept.rules, dict(kept.pending))
    again.look(holds=True, at_ms=60_000)
    assert again.told == [("firing", 60_000)]
    again.look(holds=False, at_ms=70_000)
    third = Kept(again.rules, {}, dict(again.firing))
    third.look(holds=False, at_ms=130_000)
    assert third.told == [("resolved", 130_000)]


def test_two_that_look_at_once_tell_once() -> None:
    kept = Kept({1: rule(for_s=5)})
    kept.look(holds=True, at_ms=0)
    both = [kept.judge({SUBJECT: "wrong"}, at_ms) for at_ms in (5_000, 5_001)]
    for verdict in both:
        kept.take(verdict, 5_001)
    assert kept.told == [("firing", 5_001)]


def test_maintenance_and_a_deleted_rule_end_an_alert_at_once() -> None:
    for end in ("maintenance", "deleted"):
        kept = Kept({1: rule(keep_firing_for_s=600)})
        kept.look(holds=True, at_ms=0)
        if end == "deleted":
            kept.rules = {}
        kept.look(holds=True, at_ms=5_000, quiet=end == "maintenance")
        assert kept.told == [("firing", 0), ("resolved", 5_000)], end


def test_by_a_rule_that_is_withheld_nothing_begins_and_nothing_is_forgotten() -> None:
    found = {SUBJECT: "wrong"}
    new = Kept({1: rule()})
    assert new.judge(found, 0, withheld={1}) == Verdict()
    assert new.judge(found, 0, withheld={2}).fire == found
    pends = Kept({1: rule(for_s=10)}, {SUBJECT: 0})
    assert pends.judge(found, 10_000, withheld={1}) == Verdict()
    assert pends.judge(found, 10_000).fire == found
    fires = Kept({1: rule()}, {}, {5: Firing(SUBJECT, None)})
    assert fires.judge(found, 0, withheld={1}) == Verdict()
    assert fires.judge({}, 0, withheld={1}).resolve == [5]


def test_what_pends_is_forgotten_in_maintenance() -> None:
    kept = Kept({1: rule(for_s=10)})
    kept.look(holds=True, at_ms=0)
    kept.look(holds=True, at_ms=5_000, quiet=True)
    kept.look(holds=True, at_ms=10_000)
    assert kept.told == []


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 30), st.integers(0, 30))
def test_it_is_told_only_of_what_has_lasted(holds: list[bool], for_s: int, keep_s: int) -> None:
    kept = Kept({1: rule(for_s, keep_s)})
    told = kept.looks(*holds)
    assert [event for event, _ in told] == (["firing", "resolved"] * len(told))[: len(told)]
    for event, at_ms in told:
        asked = for_s if event == "firing" else keep_s
        lasted = [
            is_so == (event == "firing")
            for number, is_so in enumerate(holds)
            if at_ms - asked * 1_000 <= number * EVERY_MS <= at_ms
        ]
        assert lasted
        assert all(lasted)
