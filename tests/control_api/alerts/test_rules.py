"""What is wrong by a rule, and what is not."""

from __future__ import annotations

from dataclasses import replace

from underpass_control.alerts.rules import Facts, Loss, Rule, RuleKind, Subject, wrong

from dama.planner import Link

NOW_MS = 1_000_000
FINE = Facts(11, "ku-1", NOW_MS, {}, {}, {Link.FORWARD: 8_000_000, Link.RETURN: 2_000_000})
UNHEARD = Rule(1, "silent", RuleKind.UNHEARD, 60_000)
LINK_DOWN = Rule(2, "lost", RuleKind.LINK_DOWN, 30_000)
DEBT = Rule(3, "owes", RuleKind.DEBT, 10_000)


def subjects(*facts: Facts, rules: tuple[Rule, ...] = (UNHEARD, LINK_DOWN, DEBT)) -> set[Subject]:
    return set(wrong(rules, facts, NOW_MS))


def test_nothing_is_wrong_with_a_terminal_that_is_fine_or_has_never_been_heard() -> None:
    assert subjects(FINE, replace(FINE, terminal=12, heard_ms=None)) == set()


def test_a_terminal_is_unheard_once_the_limit_is_over() -> None:
    assert subjects(replace(FINE, heard_ms=NOW_MS - 60_000)) == set()
    assert subjects(replace(FINE, heard_ms=NOW_MS - 60_001)) == {Subject(1, 11, "")}


def test_a_link_that_is_lost_as_long_as_was_predicted_is_not_wrong() -> None:
    long_ago = NOW_MS - 600_000
    for loss, is_wrong in (
        (Loss(long_ago, NOW_MS + 1), False),
        (Loss(long_ago, NOW_MS - 30_000), False),
        (Loss(long_ago, NOW_MS - 30_001), True),
        (Loss(long_ago, None), True),
        (Loss(NOW_MS - 30_000, None), False),
        # A prediction that ended before the loss began says nothing of it.
        (Loss(NOW_MS - 10_000, long_ago), False),
    ):
        found = subjects(replace(FINE, losses={Link.RETURN: loss}))
        assert found == ({Subject(2, 11, "return")} if is_wrong else set()), loss


def test_a_debt_is_measured_by_what_the_link_carries() -> None:
    owing = replace(FINE, owes={Link.FORWARD: 80_000_000, Link.RETURN: 20_000_001})
    assert subjects(owing) == {Subject(3, 11, "return")}
    nothing = replace(owing, capacity_bps={Link.FORWARD: 0, Link.RETURN: 0})
    assert subjects(nothing) == set()


def test_a_rule_of_a_beam_is_of_no_other_and_maintenance_is_quiet() -> None:
    silent = replace(FINE, heard_ms=0)
    assert subjects(silent, rules=(replace(UNHEARD, beam="ku-2"),)) == set()
    assert subjects(silent, rules=(replace(UNHEARD, beam="ku-1"),)) == {Subject(1, 11, "")}
    assert subjects(replace(silent, is_quiet=True)) == set()
