"""When an alert fires, and when it is over: pure functions of the faults found and the time.

A condition that comes and goes with each look is one alert: it has to hold for the rule's `for`
before it fires, and to be gone for its `keep firing for` before it is resolved, as in Prometheus.
The times since when it holds, or is gone, are in the database: processes that look in turn, and one
that restarts, continue from there. While no process looks, no reports are taken in either, so a
condition found before and after counts as having held. By a rule that is withheld, none begins, and
what has begun goes on.

Times are UTC in ms since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from underpass_control.alerts.rules import Rule, Subject


@dataclass(frozen=True, slots=True)
class Firing:
    """A firing alert, and since when its condition is gone, if it is."""

    subject: Subject
    gone_ms: int | None


@dataclass(slots=True)
class Verdict:
    """The changes that a look makes.

    Attributes:
        fire: alerts that begin, with the fault; their conditions are no longer pending.
        pend: conditions that hold from now on, and do not fire yet.
        forget: other conditions that are no longer pending.
        back: alerts whose condition holds again before they were resolved.
        gone: alerts whose condition does not hold from now on.
        resolve: alerts that are over.
    """

    fire: dict[Subject, str] = field(default_factory=dict)
    pend: list[Subject] = field(default_factory=list)
    forget: list[Subject] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    resolve: list[int] = field(default_factory=list)


def judge(
    rules: Mapping[int, Rule],
    found: Mapping[Subject, str],
    pending: Mapping[Subject, int],
    firing: Mapping[int, Firing],
    quiet: Collection[int],
    withheld: Collection[int],
    now_ms: int,
) -> Verdict:
    """Return the changes that a look makes.

    Args:
        rules: all rules, by number.
        found: the faults now, by these rules, in words.
        pending: conditions that do not fire yet, and since when each holds.
        firing: the firing alerts, by number.
        quiet: terminals in maintenance: their alerts are over at once.
        withheld: rules by which no alert begins and no condition starts to pend.
        now_ms: the time of the look.
    """
    verdict = Verdict()
    known = {one.subject for one in firing.values()}
    for subject, text in found.items():
        if subject in known or subject.rule in withheld:
            continue
        for_ms = rules[subject.rule].for_ms
        if now_ms - pending.get(subject, now_ms) >= for_ms:
            verdict.fire[subject] = text
        elif subject not in pending:
            verdict.pend.append(subject)
    verdict.forget = [one for one in pending if one not in found or one in known]
    for number, alert in firing.items():
        if alert.subject in found:
            if alert.gone_ms is not None:
                verdict.back.append(number)
            continue
        rule = rules.get(alert.subject.rule)
        keep_ms = 0 if rule is None else rule.keep_firing_for_ms
        since_ms = now_ms if alert.gone_ms is None else alert.gone_ms
        if alert.subject.terminal in quiet or now_ms - since_ms >= keep_ms:
            verdict.resolve.append(number)
        elif alert.gone_ms is None:
            verdict.gone.append(number)
    return verdict
