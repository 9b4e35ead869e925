"""The progress of a rollout in virtual time, with terminals of all kinds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from underpass_control.rollouts.documents import NOTHING, laid_over
from underpass_control.rollouts.stages import (
    FAILED,
    WAITS,
    Member,
    Progress,
    Standing,
    State,
    Step,
    Terms,
    is_late,
    next_step,
)

TERMS = Terms(sizes=(1, 3), hold_ms=60_000, wait_ms=600_000)


def pending(count: int) -> list[Member]:
    return [Member(10 + n, Progress.PENDING) for n in range(count)]


def moved(members: list[Member], nodes: object, progress: Progress, now_ms: int) -> list[Member]:
    """Return the members after some have made progress."""
    chosen = set(nodes)  # type: ignore[call-overload]
    return [
        replace(
            one,
            progress=progress,
            sent_ms=now_ms if progress is Progress.SENT else one.sent_ms,
            confirmed_ms=now_ms if progress is Progress.CONFIRMED else one.confirmed_ms,
            reason="it says so" if progress in FAILED else None,
        )
        if one.terminal in chosen
        else one
        for one in members
    ]


def stepped(terms: Terms, stage: int, members: list[Member], now_ms: int) -> Step:
    """Return the next step of terminals that stand like this."""
    confirmed = [one.confirmed_ms or 0 for one in members if one.progress is Progress.CONFIRMED]
    waits = [one for one in members if one.progress in WAITS]
    failed = [one for one in members if one.progress in FAILED]
    standing = Standing(
        total=len(members),
        pending=[one.terminal for one in members if one.progress is Progress.PENDING],
        waits=len(waits),
        holds_up=sum(not is_late(one, terms, now_ms) for one in waits),
        confirmed=len(confirmed),
        confirmed_ms=max(confirmed, default=0),
        failed=len(failed),
        last_failed=failed[-1] if failed else None,
    )
    return next_step(terms, stage, standing, now_ms)


def test_one_then_three_then_all_each_only_after_all_have_held() -> None:
    members, stage, now_ms = pending(8), 0, 0
    for expected in ([10], [11, 12, 13], [14, 15, 16, 17]):
        step = stepped(TERMS, stage, members, now_ms)
        assert step.send == expected
        stage = step.stage
        members = moved(members, expected, Progress.SENT, now_ms)
        members = moved(members, expected[1:], Progress.CONFIRMED, now_ms + 1_000)
        # All but one is not all.
        assert not stepped(TERMS, stage, members, now_ms + 400_000).send
        members = moved(members, expected, Progress.CONFIRMED, now_ms + 400_000)
        waits = stepped(TERMS, stage, members, now_ms + 459_999)
        assert (waits.send, waits.stage, waits.state) == (
            (),
            stage,
            State.RUNNING,
        ) or not waits.send
        now_ms += 460_000
    assert stepped(TERMS, stage, members, now_ms) == Step(State.DONE, stage)


def test_the_first_that_fails_stops_it_and_says_which_and_why() -> None:
    members = moved(pending(5), [10], Progress.SENT, 0)
    for progress, word in ((Progress.ROLLED_BACK, "took back"), (Progress.REFUSED, "refused")):
        step = stepped(TERMS, 0, moved(members, [10], progress, 5), 10)
        assert (step.state, step.send) == (State.STOPPED, ())
        assert step.reason is not None
        assert f"terminal 10 {word} the change: it says so" in step.reason


def test_failures_within_the_bound_are_passed_over_and_hold_nothing_up() -> None:
    terms = replace(TERMS, most_failures=1)
    members = moved(moved(pending(3), [10], Progress.SENT, 0), [10], Progress.REFUSED, 1)
    step = stepped(terms, 0, members, 2)
    assert (step.state, step.stage, list(step.send)) == (State.RUNNING, 1, [11, 12])
    two = moved(members, [11], Progress.ROLLED_BACK, 3)
    assert stepped(terms, 1, two, 4).state is State.STOPPED


def test_others_take_the_place_of_a_terminal_that_says_nothing() -> None:
    members = moved(pending(6), [10], Progress.SENT, 0)
    assert not stepped(TERMS, 0, members, 599_999).send
    step = stepped(TERMS, 0, members, 600_000)
    # A stage needs a confirmation: the next terminal is tried first, alone.
    assert (step.stage, list(step.send)) == (0, [11])
    assert is_late(members[0], TERMS, 600_000)
    members = moved(moved(members, [11], Progress.SENT, 600_000), [11], Progress.CONFIRMED, 601_000)
    step = stepped(TERMS, 0, members, 661_000)
    assert (step.stage, list(step.send)) == (1, [12, 13, 14])


def test_a_late_terminal_is_waited_for_to_the_end_and_counts_when_it_speaks() -> None:
    members = moved(pending(2), [10, 11], Progress.SENT, 0)
    members = moved(members, [11], Progress.CONFIRMED, 1_000)
    assert stepped(TERMS, 2, members, 10_000_000) == Step(State.RUNNING, 2)
    failed = moved(members, [10], Progress.ROLLED_BACK, 10_000_000)
    assert stepped(TERMS, 2, failed, 10_000_000).state is State.STOPPED
    confirmed = moved(members, [10], Progress.CONFIRMED, 10_000_000)
    assert stepped(TERMS, 2, confirmed, 10_000_001).state is State.DONE


def test_nothing_is_held_for_once_no_stage_follows() -> None:
    """Neither a stage that no terminal is left for, nor the last one, holds up the end."""
    alone = moved(moved(pending(1), [10], Progress.SENT, 0), [10], Progress.CONFIRMED, 1_000)
    assert stepped(TERMS, 0, alone, 1_000) == Step(State.DONE, 0)
    both = moved(moved(pending(2), [10], Progress.SENT, 0), [10], Progress.CONFIRMED, 1_000)
    assert not stepped(TERMS, 0, both, 60_999).send
    assert list(stepped(TERMS, 0, both, 61_000).send) == [11]
    both = moved(both, [11], Progress.SENT, 61_000)
    assert stepped(TERMS, 1, both, 62_000) == Step(State.RUNNING, 1)
    both = moved(both, [11], Progress.CONFIRMED, 63_000)
    assert stepped(TERMS, 1, both, 63_000) == Step(State.DONE, 1)


def test_with_nobody_who_answers_nobody_else_is_risked() -> None:
    """Each stage tries its own number at a time, however many of them do not answer."""
    members, now_ms = pending(20), 0
    for _ in range(20):
        step = stepped(TERMS, 0, members, now_ms)
        assert (step.stage, len(step.send)) == (0, 1)
        members = moved(members, step.send, Progress.SENT, now_ms)
        now_ms += TERMS.wait_ms
    assert not stepped(TERMS, 0, members, now_ms).send


OUTCOMES = st.sampled_from(["good", "silent", "slow", "refuses", "rolls back", "replaced"])


@given(
    outcomes=st.lists(OUTCOMES, min_size=1, max_size=25),
    sizes=st.lists(st.integers(1, 6), max_size=3),
    most_failures=st.integers(0, 3),
)
def test_whatever_terminals_do_no_more_are_risked_than_the_stage_allows(
    outcomes: list[str], sizes: list[int], most_failures: int
) -> None:
    terms = Terms(tuple(sizes), 60_000, 600_000, most_failures)
    members, stage, state, now_ms = pending(len(outcomes)), 0, State.RUNNING, 0
    outcome_of = {10 + n: outcome for n, outcome in enumerate(outcomes)}
    answers = {
        "good": (Progress.CONFIRMED, 5_000),
        "slow": (Progress.CONFIRMED, 700_000),
        "refuses": (Progress.REFUSED, 2_000),
        "rolls back": (Progress.ROLLED_BACK, 200_000),
        "replaced": (Progress.REPLACED, 3_000),
    }
    for _ in range(4_000):
        step = stepped(terms, stage, members, now_ms)
        assert step.stage >= stage
        stage, state = step.stage, step.state
        if state is not State.RUNNING:
            break
        members = moved(members, step.send, Progress.SENT, now_ms)
        counted = [one for one in members if one.progress in {*WAITS, Progress.CONFIRMED}]
        at_once = [one for one in counted if not is_late(one, terms, now_ms)]
        spare = sum(outcome_of[one.terminal] == "slow" for one in counted)
        if stage < len(sizes):
            assert len(at_once) <= sum(sizes[: stage + 1]) + spare
        now_ms += 1_000
        for one in members:
            progress, after_ms = answers.get(outcome_of[one.terminal], (None, 0))
            if (
                progress
                and one.progress is Progress.SENT
                and now_ms - (one.sent_ms or 0) >= after_ms
            ):
                members = moved(members, [one.terminal], progress, now_ms)
    failures = sum(one.progress in FAILED for one in members)
    assert (state is State.STOPPED) == (failures > most_failures)
    if state is State.RUNNING:
        # Only terminals that do not answer are left.
        assert {outcome_of[m.terminal] for m in members if m.progress in WAITS} == {"silent"}
        assert not any(one.progress is Progress.PENDING for one in members)


def test_a_change_is_laid_over_what_is_set_by_name_and_key() -> None:
    before = {
        "class": [{"name": "bulk", "policy": "migrate", "weight": 3}],
        "path": [{"name": "lte", "mtu_bytes": 1_300}],
    }
    change = {"class": [{"name": "bulk", "weight": 5}, {"name": "web", "weight": 2}], "path": []}
    assert laid_over(before, change) == {
        "class": [
            {"name": "bulk", "policy": "migrate", "weight": 5},
            {"name": "web", "weight": 2},
        ],
        "path": [{"name": "lte", "mtu_bytes": 1_300}],
    }
    assert before["class"] == [{"name": "bulk", "policy": "migrate", "weight": 3}]
    assert laid_over(NOTHING, change) == change
