"""Which conditions fulfil a rule, and which do not."""

from __future__ import annotations

from dataclasses import replace

from underpass_control.alerts.rules import Facts, Loss, Rule, RuleKind, Subject, withheld, wrong

from dama.planner import Link

NOW_MS = 1_000_000
FINE = Facts(11, "ku-1", NOW_MS, {}, {}, {Link.FORWARD: 8_000_000, Link.RETURN: 2_000_000})
UNHEARD = Rule(1, "silent", RuleKind.UNHEARD, 60_000)
LINK_DOWN = Rule(2, "lost", RuleKind.LINK_DOWN, 30_000)
DEBT = Rule(3, "owes", RuleKind.DEBT, 10_000)
CERTIFICATE = Rule(4, "ends", RuleKind.CERTIFICATE, 86_400_000)
VERSION = Rule(5, "behind", RuleKind.VERSION, 0, version="1.2.0")


def subjects(*facts: Facts, rules: tuple[Rule, ...] = (UNHEARD, LINK_DOWN, DEBT)) -> set[Subject]:
    return set(wrong(rules, facts, NOW_MS))


def test_nothing_is_wrong_with_a_terminal_that_is_fine_or_has_never_been_heard() -> None:
    assert subjects(FINE, replace(FINE, terminal=12, heard_ms=None)) == set()


def test_a_terminal_is_unheard_once_the_limit_is_over() -> None:
    assert subjects(replace(FINE, heard_ms=NOW_MS - 60_000)) == set()
    assert subjects(replace(FINE, heard_ms=NOW_MS - 60_001)) == {Subject(1, 11, "")}


def test_only_silence_waits_until_the_service_has_heard_for_the_limit() -> None:
    rules = (UNHEARD, LINK_DOWN, DEBT, CERTIFICATE, VERSION)
    assert withheld(rules, 0.0) == {UNHEARD.id}
    assert withheld(rules, 60.0) == {UNHEARD.id}
    assert withheld(rules, 60.001) == set()


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


def test_a_certificate_has_to_be_good_for_the_limit() -> None:
    for end_ms, text in (
        (None, None),
        (NOW_MS + 86_400_000, None),
        (NOW_MS + 86_399_999, "ends at 1970-01-02T00:16:39.999Z"),
        (NOW_MS, "ended at"),
        (0, "ended at 1970-01-01T00:00:00.000Z"),
    ):
        found = wrong([CERTIFICATE], [replace(FINE, certificate_end_ms=end_ms)], NOW_MS)
        assert set(found) == (set() if text is None else {Subject(4, 11, "")}), end_ms
        assert text is None or text in found[Subject(4, 11, "")]


def test_another_version_than_the_named_one_is_wrong_and_an_unknown_one_is_not() -> None:
    for version, is_wrong in ((None, False), ("1.2.0", False), ("1.1.9", True), ("9.0.0", True)):
        found = wrong([VERSION], [replace(FINE, version=version)], NOW_MS)
        assert set(found) == ({Subject(5, 11, "")} if is_wrong else set()), version
    (text,) = wrong([VERSION], [replace(FINE, version="1.1.9")], NOW_MS).values()
    assert text == "terminal 11 runs version 1.1.9, not 1.2.0"


def test_no_terminal_makes_others_look_outdated() -> None:
    liar, honest = replace(FINE, version="999"), replace(FINE, terminal=12, version="1.2.0")
    assert set(wrong([VERSION], [liar, honest], NOW_MS)) == {Subject(5, 11, "")}
