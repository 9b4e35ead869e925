"""How a rollout goes on: pure functions of its terminals' reports and the time.

Each stage has a number of terminals; the last one has all that are left. The next stage begins when
all terminals so far have confirmed, and have kept the change for a time. Nothing follows the last
one, so a rollout ends as soon as all have reported. A terminal that reports nothing for long is no
longer awaited: another takes its place, so that no stage passes untested. Its later reports still
count.

Times are UTC in ms since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Of a rollout."""

    RUNNING = "running"
    # An operator has it wait.
    PAUSED = "paused"
    # It waits, since too many terminals have not taken the change.
    STOPPED = "stopped"
    # Former settings are being sent.
    ABORTING = "aborting"
    ABORTED = "aborted"
    DONE = "done"


# The final states.
ENDED = frozenset({State.ABORTED, State.DONE})


class Progress(StrEnum):
    """How far a terminal is with the change."""

    # It has not been set yet.
    PENDING = "pending"
    # It is set, and the terminal has not said anything of it.
    SENT = "sent"
    # The terminal runs by it until it has heard its hub.
    TRIAL = "trial"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    ROLLED_BACK = "rolled-back"
    # Other settings have been made meanwhile, or the terminal has left the tenant.
    REPLACED = "replaced"
    # The former settings have been set again.
    RESTORED = "restored"


FAILED = frozenset({Progress.REFUSED, Progress.ROLLED_BACK})
WAITS = frozenset({Progress.SENT, Progress.TRIAL})


@dataclass(frozen=True, slots=True)
class Member:
    """A terminal of a rollout: when the change was set, and when it was confirmed."""

    terminal: int
    progress: Progress
    sent_ms: int | None = None
    confirmed_ms: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a rollout, as an operator has set them.

    Attributes:
        sizes: the terminals of each stage but the last, which has the rest.
        hold_ms: for how long all have to have confirmed before the next stage.
        wait_ms: for how long a silent terminal delays the others.
        most_failures: with more failures, the rollout stops.
    """

    sizes: tuple[int, ...]
    hold_ms: int
    wait_ms: int
    most_failures: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where all terminals of a rollout stand, in numbers.

    Attributes:
        total: all of its terminals.
        pending: the next ones to set, in order, of those that are not set; empty only if all are.
        waits: those of whose outcome nothing is known.
        holds_up: those among them that have been silent for less than `Terms.wait_ms`.
        confirmed: those that have confirmed, and `confirmed_ms`, when the last of them did.
        failed: those that have not taken the change, and `last_failed`, the last in order.
    """

    total: int
    pending: Sequence[int]
    waits: int
    holds_up: int
    confirmed: int
    confirmed_ms: int
    failed: int
    last_failed: Member | None


@dataclass(frozen=True, slots=True)
class Step:
    """The next step: the terminals to set, and the rollout's state afterwards."""

    state: State
    stage: int
    send: Sequence[int] = field(default=())
    reason: str | None = None


def next_step(terms: Terms, stage: int, standing: Standing, now_ms: int) -> Step:
    """Return the next step of a running rollout."""
    if standing.last_failed is not None and standing.failed > terms.most_failures:
        return Step(State.STOPPED, stage, reason=_why(standing.last_failed, standing.failed - 1))
    if not standing.pending:
        return Step(State.RUNNING if standing.waits else State.DONE, stage)
    has_held = not standing.confirmed or now_ms - standing.confirmed_ms >= terms.hold_ms
    tried = standing.confirmed + standing.holds_up + standing.failed
    while True:
        target = sum(terms.sizes[: stage + 1]) if stage < len(terms.sizes) else standing.total
        send = standing.pending[: max(target - tried, 0)]
        if send or standing.holds_up or not has_held:
            return Step(State.RUNNING, stage, send)
        stage += 1


def is_late(member: Member, terms: Terms, now_ms: int) -> bool:
    """Tell whether a terminal has been silent for so long that the others continue without it."""
    return member.progress in WAITS and now_ms - (member.sent_ms or 0) >= terms.wait_ms


def _why(last: Member, more: int) -> str:
    what = "took back" if last.progress is Progress.ROLLED_BACK else "refused"
    others = f", as have {more} others" if more else ""
    return f"terminal {last.terminal} {what} the change{others}: {last.reason or 'no reason'}"
