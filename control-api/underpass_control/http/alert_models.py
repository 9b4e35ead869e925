"""What the API takes and gives of alerts, their rules, and the webhooks that are told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from underpass_control.http.models import BeamId, Instant, Model, Name, NodeNumber, Page

RuleKindName = Literal["unheard", "link-down", "debt"]
MOST_LIMIT_S = 31 * 86_400


class AlertRuleBody(Model):
    """A rule, as it is made.

    `limit_s` of `unheard`: how long nothing may come of a terminal itself. Of `link-down`: by how
    much longer than predicted a link may be lost. Of `debt`: how long the beam's link takes to
    carry what a terminal may owe.
    """

    name: Name
    kind: RuleKindName
    limit_s: Annotated[float, Field(gt=0, le=MOST_LIMIT_S, allow_inf_nan=False)]
    # Without it, for all beams.
    beam: BeamId | None = None


class AlertRule(AlertRuleBody):
    """A rule."""

    id: int


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
    # Callers of a tenant are not told by whom.
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
    url: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[\x21-\x7e]+$")]


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
