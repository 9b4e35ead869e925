"""The faults by the rules of alerts: pure functions of facts about terminals and the time.

Times are UTC in ms since the Unix epoch, amounts bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dama.planner import Link
from underpass_control.instants import moment_of, rfc3339


class RuleKind(StrEnum):
    """The condition of a rule; each but `VERSION` has a limit in seconds."""

    # No report by a terminal itself has come for longer.
    UNHEARD = "unheard"
    # A link is lost for longer than predicted, by more than the limit.
    LINK_DOWN = "link-down"
    # A terminal owes more than its beam's link carries in that time.
    DEBT = "debt"
    # A terminal's certificate ends within that time, or has ended.
    CERTIFICATE = "certificate"
    # A terminal runs another version of the software than the rule names.
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        id: its number.
        name: an operator's name of it.
        kind: of its condition.
        limit_ms: its limit; 0 for a kind without one.
        beam: None where it is for all beams.
        for_ms: for how long its condition has to hold before it fires.
        keep_firing_for_ms: for how long the condition has to be gone before alerts are resolved.
        version: of the software that terminals should run, for a rule of that kind.
    """

    id: int
    name: str
    kind: RuleKind
    limit_ms: int
    beam: str | None = None
    for_ms: int = 0
    keep_firing_for_ms: int = 0
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A present loss of link, and when it was predicted to end, if it was predicted."""

    since_ms: int
    predicted_exit_ms: int | None

    @property
    def due_ms(self) -> int:
        """When the link should have been back: at once, if its loss was not predicted."""
        if self.predicted_exit_ms is None:
            return self.since_ms
        return max(self.since_ms, self.predicted_exit_ms)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a terminal.

    Attributes:
        terminal: its node number.
        beam: its beam.
        heard_ms: when its last own report came; None: none has come yet.
        losses: its links that are lost.
        owes: by link, its debt in bits.
        capacity_bps: by link, the capacity of the beam.
        is_quiet: it, or its beam, is in maintenance.
        version: of the software that it runs; None: it has not reported it.
        certificate_end_ms: when its certificate ends; None: it has none, or has not reported it.
    """

    terminal: int
    beam: str
    heard_ms: int | None
    losses: Mapping[Link, Loss]
    owes: Mapping[Link, int]
    capacity_bps: Mapping[Link, int]
    is_quiet: bool = False
    version: str | None = None
    certificate_end_ms: int | None = None


class Subject(NamedTuple):
    """The subject of an alert: its rule, terminal and link (empty: not about a link)."""

    rule: int
    terminal: int
    link: str


def wrong(rules: Iterable[Rule], facts: Iterable[Facts], now_ms: int) -> dict[Subject, str]:
    """Return the present faults, in words."""
    in_order = tuple(rules)
    found: dict[Subject, str] = {}
    for one in facts:
        if one.is_quiet:
            continue
        for rule in in_order:
            if rule.beam in (None, one.beam):
                for link, text in _BY_KIND[rule.kind](one, rule, now_ms):
                    found[Subject(rule.id, one.terminal, link)] = text
    return found


def withheld(rules: Iterable[Rule], hears_for_s: float) -> set[int]:
    """Return the rules by which no alert begins yet, as the silence may be this service's own.

    After an outage of the service or its database, the last reports of all terminals are as old as
    the outage is long. So silence counts once a process has been able to hear for the limit.

    Args:
        rules: all rules.
        hears_for_s: for how long this process has been able to hear, in seconds.
    """
    return {
        rule.id
        for rule in rules
        if rule.kind is RuleKind.UNHEARD and hears_for_s * 1000 <= rule.limit_ms
    }


def _unheard(one: Facts, rule: Rule, now_ms: int) -> Iterator[tuple[str, str]]:
    if one.heard_ms is not None and now_ms - one.heard_ms > rule.limit_ms:
        # The text leaves out the time that has passed: it would differ each time.
        yield "", f"nothing has come from terminal {one.terminal} for {_seconds(rule.limit_ms)}"


def _link_down(one: Facts, rule: Rule, now_ms: int) -> Iterator[tuple[str, str]]:
    for link, loss in one.losses.items():
        if now_ms - loss.due_ms > rule.limit_ms:
            what = "that was not predicted" if loss.predicted_exit_ms is None else "than predicted"
            longer = "has lasted" if loss.predicted_exit_ms is None else "lasts longer"
            yield (
                link.value,
                f"a loss of the {link.value} link of terminal {one.terminal} {longer} {what}, "
                f"by {_seconds(rule.limit_ms)}",
            )


def _debt(one: Facts, rule: Rule, _now_ms: int) -> Iterator[tuple[str, str]]:
    for link, bits in one.owes.items():
        if bits * 1000 > rule.limit_ms * one.capacity_bps[link] > 0:
            yield (
                link.value,
                f"terminal {one.terminal} owes more than the {link.value} link of beam {one.beam} "
                f"carries in {_seconds(rule.limit_ms)}",
            )


def _certificate(one: Facts, rule: Rule, now_ms: int) -> Iterator[tuple[str, str]]:
    end_ms = one.certificate_end_ms
    if end_ms is not None and end_ms - now_ms < rule.limit_ms:
        ends = "ended" if end_ms <= now_ms else "ends"
        at = rfc3339(moment_of(end_ms))
        yield "", f"the certificate of terminal {one.terminal} {ends} at {at}"


def _version(one: Facts, rule: Rule, _now_ms: int) -> Iterator[tuple[str, str]]:
    # Any other version counts, not only an older one: the service cannot order versions, and so no
    # terminal can make the others look outdated.
    if one.version is not None and one.version != rule.version:
        yield "", f"terminal {one.terminal} runs version {one.version}, not {rule.version}"


_BY_KIND = {
    RuleKind.UNHEARD: _unheard,
    RuleKind.LINK_DOWN: _link_down,
    RuleKind.DEBT: _debt,
    RuleKind.CERTIFICATE: _certificate,
    RuleKind.VERSION: _version,
}


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
