"""The API's models of rollouts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from underpass_control.http.models import BeamId, Instant, Model, Name, NodeNumber, Tag
from underpass_control.http.setting_models import SettingsBody

MOST_LISTED = 10_000
_MOST_STAGES = 10
_MOST_S = 31 * 86_400

StateName = Literal["running", "paused", "stopped", "aborting", "aborted", "done"]
ProgressName = Literal[
    "pending",
    "sent",
    "trial",
    "confirmed",
    "refused",
    "rolled-back",
    "replaced",
    "restored",
]
Span = Annotated[float, Field(ge=0, le=_MOST_S, allow_inf_nan=False)]


class RolloutTerms(Model):
    """In which stages a change is made, and when the next one begins."""

    # The number of terminals of each stage except the last, which has all others.
    stages: list[Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default=[1, 10], max_length=_MOST_STAGES
    )
    # How long all stages so far have to have confirmed it before the next one begins.
    hold_s: Span = 300
    # A terminal without an answer for this long is not waited for: others take its place.
    wait_s: Annotated[float, Field(ge=1, le=_MOST_S, allow_inf_nan=False)] = 3_600
    # How many terminals may refuse it or roll it back; with one more, the rollout stops.
    most_failures: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class RolloutBody(RolloutTerms):
    """A rollout, as it is made: of terminals that are named, have a tag, or are of a beam."""

    name: Name
    terminals: Annotated[list[NodeNumber], Field(min_length=1, max_length=MOST_LISTED)] | None = (
        None
    )
    tag: Tag | None = None
    beam: BeamId | None = None
    # Merged into each terminal's settings, by the names of classes and paths.
    settings: SettingsBody
    # Whether it replaces each terminal's settings instead.
    whole: bool = False

    @model_validator(mode="after")
    def _names_terminals(self) -> RolloutBody:
        named = [one for one in (self.terminals, self.tag, self.beam) if one is not None]
        if len(named) != 1:
            raise ValueError("one of terminals, tag and beam is needed")
        if self.terminals is not None and len(set(self.terminals)) < len(self.terminals):
            raise ValueError("a terminal is there twice")
        if not (self.whole or self.settings.classes or self.settings.paths):
            raise ValueError("nothing is changed: classes, paths, or `whole` is needed")
        return self


class RolloutCounts(Model):
    """How many terminals are how far."""

    pending: int = 0
    sent: int = 0
    trial: int = 0
    confirmed: int = 0
    refused: int = 0
    rolled_back: int = 0
    replaced: int = 0
    restored: int = 0


class Rollout(RolloutTerms):
    """A rollout, and how far it is.

    `revision` rises with each change of `state`; `If-Match` names it to change the state as it is
    here.
    """

    id: int
    name: Name
    settings: SettingsBody
    whole: bool
    state: StateName
    # The present stage, from 1.
    stage: int
    # Why the rollout has stopped.
    reason: str | None = None
    counts: RolloutCounts
    created: Instant
    created_by: str
    changed: Instant
    revision: int


class RolloutList(Model):
    """A page of rollouts, the newest first."""

    rollouts: list[Rollout]
    next: str | None = None


class RolloutTerminal(Model):
    """A terminal of a rollout, and how far it is."""

    terminal: NodeNumber
    progress: ProgressName
    # It has not answered for long: the others continue without it.
    late: bool = False
    # The stage in which it was set, from 1.
    stage: int | None = None
    version: int | None = None
    sent: Instant | None = None
    confirmed: Instant | None = None
    reason: str | None = None


class RolloutTerminalList(Model):
    """A page of a rollout's terminals, in the order in which they are tried."""

    terminals: list[RolloutTerminal]
    next: str | None = None


class RolloutStateBody(Model):
    """What a rollout is to do.

    `running`: to go on; failures so far are accepted. `aborted`: to end; with `restore`, terminals
    that have the change get what was set of them before.
    """

    state: Literal["running", "paused", "aborted"]
    restore: bool = False

    @model_validator(mode="after")
    def _restores_at_the_end(self) -> RolloutStateBody:
        if self.restore and self.state != "aborted":
            raise ValueError("restore is for aborting")
        return self
