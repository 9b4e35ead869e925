"""Which reports are recognised as a fade."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from underpass_control.fades import (
    APART_MS,
    BELIEVED_AFTER_MS,
    CARRIED_PART,
    EXPIRES_AFTER_MS,
    FAILED_AFTER_MS,
    FIRST_PAUSE_MS,
    LEAST_EFFICIENCY,
    MOST_PAUSE_MS,
    SETTLED_AFTER_MS,
    Fade,
    Grant,
    Sight,
)

RATE_BPS = 1_000_000
CLEAR = Grant(RATE_BPS, Fraction(1))
# The time at which a link that has been reported each second since 0 is surely in a fade.
SEEN_MS = SETTLED_AFTER_MS + BELIEVED_AFTER_MS


def sight(
    time_ms: int,
    capacity_bps: int | None,
    grant: Grant = CLEAR,
    *,
    reason: str = "limit",
    sent_bps: int | None = None,
) -> Sight:
    if sent_bps is None:
        sent_bps = min(grant.rate_bps, capacity_bps or grant.rate_bps)
    return Sight(time_ms, grant, capacity_bps, None if capacity_bps is None else reason, sent_bps)


def look(fade: Fade, from_ms: int, to_ms: int, capacity_bps: int | None, **members: object) -> Fade:
    for time_ms in range(from_ms, to_ms + 1, 1_000):
        fade.see(sight(time_ms, capacity_bps, **members))  # type: ignore[arg-type]
    return fade


def in_fade() -> Fade:
    """Return a fade of 1/4 that has just been found."""
    return look(Fade(), 0, SEEN_MS, RATE_BPS // 4)


def at(fade: Fade) -> Grant:
    """Return the grant of a plan that follows the efficiency, for the same capacity."""
    return Grant(int(RATE_BPS * fade.efficiency), fade.efficiency)


def test_a_link_that_carries_a_quarter_of_the_plan_is_in_a_fade_of_a_quarter() -> None:
    assert look(Fade(), 0, SEEN_MS - 1_000, RATE_BPS // 4).efficiency == 1
    assert in_fade().efficiency == Fraction(1, 4)


def test_the_best_report_counts() -> None:
    fade = look(Fade(), 0, SEEN_MS - 3_000, RATE_BPS // 4)
    for second, capacity_bps in enumerate((250_000, 300_000, 200_000)):
        fade.see(sight(SEEN_MS - 2_000 + 1_000 * second, capacity_bps))
    assert fade.efficiency == Fraction(3, 10)


def test_one_report_that_carries_the_plan_begins_anew() -> None:
    fade = look(Fade(), 0, SEEN_MS - 1_000, RATE_BPS // 4)
    fade.see(sight(SEEN_MS, RATE_BPS))
    look(fade, SEEN_MS + 1_000, SEEN_MS + BELIEVED_AFTER_MS, RATE_BPS // 4)
    assert fade.efficiency == 1


def test_what_comes_and_goes_every_fifteen_seconds_is_no_fade() -> None:
    fade = Fade()
    for turn in range(20):
        capacity_bps = RATE_BPS // 7 if turn % 2 else RATE_BPS
        look(fade, 15_000 * turn, 15_000 * turn + 14_000, capacity_bps)
        assert fade.efficiency == 1


def test_a_measurement_near_the_plan_tells_nothing() -> None:
    least = -(-RATE_BPS * CARRIED_PART.numerator // CARRIED_PART.denominator)
    assert look(Fade(), 0, 60_000, least).efficiency == 1
    assert look(Fade(), 0, 60_000, least - 2_000).efficiency < 1


def test_only_a_limit_is_evidence() -> None:
    for reason in ("hint", "start", "probe", "oracle"):
        fade = look(Fade(), 0, 60_000, RATE_BPS // 4, reason=reason)
        assert fade.efficiency == 1, reason


def test_what_is_sent_disproves_a_lower_measurement() -> None:
    assert look(Fade(), 0, 60_000, 1_000, sent_bps=RATE_BPS).efficiency == 1
    fade = look(Fade(), 0, 60_000, 1_000, sent_bps=RATE_BPS // 2)
    assert fade.efficiency == Fraction(1, 2)


def test_a_plan_that_gives_more_is_no_evidence_until_the_sender_could_find_it() -> None:
    fade = look(Fade(), 0, 20_000, RATE_BPS)
    more = Grant(2 * RATE_BPS, Fraction(1))
    look(fade, 21_000, 20_000 + SETTLED_AFTER_MS, RATE_BPS, grant=more)
    assert fade.efficiency == 1


def test_without_a_backlog_or_while_blocked_nothing_is_learned() -> None:
    fade = look(Fade(), 0, SEEN_MS - 1_000, RATE_BPS // 4)
    fade.interrupt()
    look(fade, SEEN_MS, SEEN_MS + SETTLED_AFTER_MS + 1_000, RATE_BPS // 4)
    assert fade.efficiency == 1
    assert look(Fade(), 0, 60_000, 1, grant=Grant(0, Fraction(1))).efficiency == 1


def test_a_lower_plan_that_is_carried_lowers_nothing_more() -> None:
    fade = in_fade()
    for n in range(1, 20):
        grant = Grant(at(fade).rate_bps // n, fade.efficiency)
        look(fade, SEEN_MS + 10_000 * n, SEEN_MS + 10_000 * n + 9_000, grant.rate_bps, grant=grant)
        assert fade.efficiency >= Fraction(1, 4)


def test_a_step_up_that_is_carried_is_followed_by_a_larger_one() -> None:
    fade = in_fade()
    steps = [fade.efficiency]
    now_ms = SEEN_MS + FIRST_PAUSE_MS
    while fade.efficiency < 1 and len(steps) < 10:
        grant = at(fade)
        fade.see(sight(now_ms, grant.rate_bps, grant, reason="probe"))
        steps.append(fade.efficiency)
        now_ms += 1_000
    assert [round(float(step), 2) for step in steps] == [0.25, 0.31, 0.47, 0.94, 1.0]


def test_a_step_up_that_fails_is_taken_back_and_the_next_one_waits_longer() -> None:
    fade = in_fade()
    now_ms, begun = SEEN_MS, []
    before = fade.efficiency
    for _ in range(400):
        now_ms += 1_000
        fade.see(sight(now_ms, RATE_BPS // 4, at(fade)))
        if fade.efficiency > before:
            begun.append(now_ms)
        before = fade.efficiency
        assert Fraction(1, 4) <= fade.efficiency <= Fraction(5, 16)
    pauses = [(late - early) // 1_000 for early, late in itertools.pairwise(begun)]
    assert pauses[0] < pauses[1] < pauses[2] == pauses[-1]
    lasting_s = (SETTLED_AFTER_MS + FAILED_AFTER_MS) // 1_000
    assert pauses[-1] <= MOST_PAUSE_MS // 1_000 + lasting_s + 2


def test_more_capacity_that_brings_no_more_bits_is_no_deeper_fade() -> None:
    fade = in_fade()
    # By bits, the plan compensates: four times the capacity. The link's rate is as before.
    grant = Grant(RATE_BPS, Fraction(1, 4))
    look(fade, SEEN_MS + 1_000, SEEN_MS + 300_000, RATE_BPS // 4, grant=grant)
    assert fade.efficiency == Fraction(1, 4)
    # It carries a half of that, which is enough for a fade.
    look(fade, SEEN_MS + 301_000, SEEN_MS + 340_000, RATE_BPS // 8, grant=grant)
    assert fade.efficiency == Fraction(1, 8)


def test_what_was_measured_long_ago_is_forgotten() -> None:
    fade = in_fade()
    fade.interrupt()
    fade.expire(SEEN_MS + EXPIRES_AFTER_MS)
    assert fade.efficiency == Fraction(1, 4)
    fade.expire(SEEN_MS + EXPIRES_AFTER_MS + 1)
    assert fade.efficiency == 1


def test_another_process_goes_on_from_the_last_plan() -> None:
    fade = Fade.remembered(Fraction(1, 4), SEEN_MS)
    assert fade.efficiency == Fraction(1, 4)
    look(fade, SEEN_MS, SEEN_MS + 1_000, RATE_BPS // 4, grant=Grant(RATE_BPS // 4, Fraction(1, 4)))
    assert fade.efficiency == Fraction(5, 16)
    assert Fade.remembered(Fraction(9, 4), 0).efficiency == 1


sights = st.builds(
    Sight,
    st.integers(0, 600_000),
    st.builds(
        Grant,
        st.integers(0, 10**12),
        st.fractions(Fraction(1, 1000), 1000, max_denominator=1000),
    ),
    st.none() | st.integers(0, 10**12),
    st.sampled_from(["limit", "probe", "start", "hint", "", "x"]),
    st.none() | st.integers(0, 2**63),
)


@given(st.lists(sights, max_size=60), st.booleans())
def test_whatever_is_claimed_the_efficiency_is_a_fraction_of_what_a_fade_leaves(
    claimed: list[Sight], in_order: bool
) -> None:
    fade = Fade()
    for one in sorted(claimed, key=lambda one: one.time_ms) if in_order else claimed:
        fade.see(one)
        fade.expire(one.time_ms)
        assert LEAST_EFFICIENCY.limit_denominator(1_000) <= fade.efficiency <= 1
        assert fade.efficiency.denominator <= 1_000


@given(st.lists(st.integers(0, 20_000), max_size=300), st.integers(0, RATE_BPS))
def test_however_many_reports_come_few_are_kept(times_ms: list[int], capacity_bps: int) -> None:
    fade = Fade()
    for time_ms in times_ms:
        fade.see(sight(time_ms, capacity_bps))
    assert len(fade._granted) <= SETTLED_AFTER_MS // APART_MS + 2
    assert len(fade._short) <= 2 * BELIEVED_AFTER_MS // APART_MS + 2


def test_a_link_that_carries_nothing_at_all_is_in_the_deepest_fade() -> None:
    fade = look(Fade(), 0, 60_000, 1, sent_bps=0)
    more = Grant(2 * RATE_BPS, Fraction(1, 16))
    assert look(fade, 61_000, 90_000, 1, sent_bps=0, grant=more).efficiency <= Fraction(1, 15)
