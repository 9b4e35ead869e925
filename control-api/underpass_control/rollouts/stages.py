"""How a rollout goes on: pure, from what its terminals have said and the time.

A stage has so many terminals; the last one has all that are left. The next one begins when all of
the stages so far have confirmed and have held for a time. A terminal that says nothing for long is
waited for no more: others take its place, so that a stage is not passed without having been tried,
and what it says later counts all the same.

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


# Nothing more happens to those.
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
    # Somebody has set something else, or the terminal has left the tenant.
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
    """What an operator has said of a rollout.

    Attributes:
        sizes: the terminals of each stage but the last, which has the rest.
        hold_ms: for how long all have to have confirmed before the next stage.
        wait_ms: for how long a terminal that says nothing holds up the others.
        most_failures: the rollout stops beyond.
    """

    sizes: tuple[int, ...]
    hold_ms: int
    wait_ms: int
    most_failures: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done now: terminals to be set, and how the rollout is then."""

    state: State
    stage: int
    send: Sequence[int] = field(default=())
    reason: str | None = None


def next_step(terms: Terms, stage: int, members: Sequence[Member], now_ms: int) -> Step:
    """Return how a rollout goes on that runs; `members` are in their order."""
    failed = [one for one in members if one.progress in FAILED]
    if len(failed) > terms.most_failures:
        return Step(State.STOPPED, stage, reason=_why(failed))
    confirmed = [one for one in members if one.progress is Progress.CONFIRMED]
    pending = [one.terminal for one in members if one.progress is Progress.PENDING]
    waits = [one for one in members if one.progress in WAITS]
    holds_up = [one for one in waits if now_ms - (one.sent_ms or 0) < terms.wait_ms]
    has_held = all(now_ms - (one.confirmed_ms or 0) >= terms.hold_ms for one in confirmed)
    tried = len(confirmed) + len(holds_up) + len(failed)
    while True:
        target = sum(terms.sizes[: stage + 1]) if stage < len(terms.sizes) else len(members)
        send = pending[: max(target - tried, 0)]
        if send or holds_up or not has_held:
            return Step(State.RUNNING, stage, send)
        if not pending:
            done = State.RUNNING if waits else State.DONE
            return Step(done, stage)
        stage += 1


def is_late(member: Member, terms: Terms, now_ms: int) -> bool:
    """Tell whether a terminal has said nothing for so long that others go on without it."""
    return member.progress in WAITS and now_ms - (member.sent_ms or 0) >= terms.wait_ms


def _why(failed: Sequence[Member]) -> str:
    last = failed[-1]
    what = "took back" if last.progress is Progress.ROLLED_BACK else "refused"
    others = f", as have {len(failed) - 1} others" if len(failed) > 1 else ""
    return f"terminal {last.terminal} {what} the change{others}: {last.reason or 'no reason'}"
