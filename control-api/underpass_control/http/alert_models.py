"""The API's models of alerts, their rules, and the webhooks that receive them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from underpass_control.http.models import (
    BeamId,
    Instant,
    Model,
    Name,
    NodeNumber,
    Page,
    SoftwareVersion,
)
from underpass_control.validation import VISIBLE_ASCII

RuleKindName = Literal["unheard", "link-down", "debt", "certificate", "version"]
MOST_LIMIT_S = 366 * 86_400
MOST_WAIT_S = 7 * 86_400


class AlertRuleBody(Model):
    """A rule, as it is made.

    `limit_s` of `unheard`: how long nothing may come of a terminal itself. Of `link-down`: by how
    much longer than predicted a link may be lost. Of `debt`: how long the beam's link takes to
    carry what a terminal may owe. Of `certificate`: how long a terminal's certificate has to be
    good for. `version` has none, and names the `version` that terminals are to run.

    Its condition has to hold for `for_s` before it fires, and to be gone for `keep_firing_for_s`
    before what fires is resolved.
    """

    name: Name
    kind: RuleKindName
    limit_s: Annotated[float, Field(gt=0, le=MOST_LIMIT_S, allow_inf_nan=False)] | None = None
    for_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S, allow_inf_nan=False)] = 0
    keep_firing_for_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S, allow_inf_nan=False)] = 60
    version: SoftwareVersion | None = None
    # Without it, the rule is for all beams.
    beam: BeamId | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        about_software = self.kind == "version"
        if (self.version is not None) != about_software:
            raise ValueError("`version` is for rules of the kind version, which need it")
        if (self.limit_s is None) != about_software:
            raise ValueError("`limit_s` is for rules of all kinds but version, which need it")
        return self


class AlertRule(AlertRuleBody):
    """A rule; `revision` is what `If-Match` names to change it as it is here."""

    id: int
    revision: int


class AlertRuleList(Model):
    """All rules."""

    rules: list[AlertRule]


class Alert(Model):
    """Something that is wrong with a terminal since a time, or was until it was `resolved`."""

    id: int
    rule: str
    kind: RuleKindName
    terminal: NodeNumber
    link: Literal["forward", "return"] | None = None
    text: str
    since: Instant
    resolved: Instant | None = None
    # A tenant's callers do not see by whom.
    acknowledged_by: str | None = None
    acknowledged: Instant | None = None


class AlertList(Model):
    """A page of alerts, the newest first."""

    alerts: list[Alert]
    next: str | None = None


class AlertQuery(Page):
    """Which alerts: those that fire, or those that are over; or both."""

    firing: bool | None = None


class AlertTargetBody(Model):
    """A webhook, or `mailto:` an address, that is told of all alerts, as it is made."""

    name: Name
    url: Annotated[str, Field(min_length=1, max_length=2_000, pattern=VISIBLE_ASCII)]


class AlertTarget(AlertTargetBody):
    """A target, and how the last message to it went."""

    id: int
    last: Instant | None = None
    last_failure: str | None = None


class NewAlertTarget(AlertTarget):
    """A target that has just been made: its secret is shown this once."""

    secret: str


class AlertTargetList(Model):
    """All targets."""

    targets: list[AlertTarget]
