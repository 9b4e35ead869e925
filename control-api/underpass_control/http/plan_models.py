"""The API's models of plans, capacity and leases.

Times of plans are times of transmission at the node that sends on the link. Amounts are bits of
capacity: bits that the beam carries at efficiency 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from underpass_control.http.models import BeamId, Instant, Model, NodeNumber, Page, Rate

LinkName = Literal["forward", "return"]
State = Literal["fair", "borrowing", "lending", "repaying", "repaid", "blocked"]
MOST_STEPS = 1_000
# Bounds of a question, since the cost of planning grows with these numbers.
MOST_WHAT_IF_STEPS = 100
MOST_WHAT_IF_BLOCKAGES = 200
MOST_WHAT_IF_TERMINALS = 10_000
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Bits = Annotated[int, Field(ge=-(2**53), le=2**53)]
DelayMs = Annotated[int, Field(ge=0, le=10_000)]


class Step(Model):
    """What a link carries from a time on, until the next step."""

    # `from` is a keyword of Python.
    from_: Annotated[Instant, Field(alias="from")]
    rate_bps: Rate


Steps = Annotated[list[Step], Field(max_length=MOST_STEPS)]


class CapacityBody(Model):
    """A beam's capacity over time: before its first step, a link carries what the beam says."""

    forward: Steps = Field(default_factory=list)
    return_: Steps = Field(default_factory=list, alias="return")


class Capacity(CapacityBody):
    """The same, with what each link carries now."""

    beam: BeamId
    forward_now_bps: Rate
    return_now_bps: Rate


class Segment(Model):
    """A constant rate over an interval; in a terminal's own plan, with what it moves."""

    start: Instant
    end: Instant
    rate_bps: int
    state: State
    bits: int | None = None
    fair_bits: int | None = None
    borrowed_bits: int | None = None
    lent_bits: int | None = None
    repaid_bits: int | None = None
    repaying_bits: int | None = None


class Line(Model):
    """Terminals with the same line."""

    terminals: list[NodeNumber]
    guaranteed_bps: int
    # The efficiency that the plan assumes: bits per unit of capacity.
    efficiency: float
    segments: list[Segment]


class Plan(Model):
    """A plan; `reason` says why it was made."""

    beam: BeamId
    link: LinkName
    plan: int
    issued: Instant
    start: Instant
    end: Instant
    reason: str
    capacity: list[Step]
    lines: list[Line]


class PlanQuery(Model):
    """Which plan: that which holds at a time, or else the newest; of all terminals, or of one.

    With `terminal`, segments have all amounts.
    """

    at: Instant | None = None
    terminal: NodeNumber | None = None


class VersionQuery(Model):
    """Of all terminals, or of one, with all amounts."""

    terminal: NodeNumber | None = None


class PlansQuery(Page):
    """Which plans: the newest first."""

    link: LinkName


class Version(Model):
    """A plan, without its lines."""

    plan: int
    issued: Instant
    start: Instant
    end: Instant
    reason: str


class Versions(Model):
    """A page of a link's plans."""

    plans: list[Version]
    next: str | None = None


class Acknowledgement(Model):
    """A node has a plan since a time."""

    node: NodeNumber
    applied: Instant


class Acknowledgements(Model):
    """A page of the nodes that have a plan, in order of their numbers."""

    acknowledgements: list[Acknowledgement]
    next: str | None = None


class Lease(Model):
    """Who plans a beam; without a holder, nobody does at the moment."""

    beam: BeamId
    holder: str | None = None
    fence: int | None = None
    left_ms: int | None = None


class WhatIfTerminal(Model):
    """What is different of a terminal; one that the beam does not have is added."""

    terminal: NodeNumber
    weight: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    minimum_bps: Rate | None = None
    maximum_bps: Rate | None = None
    # Without it, as in the present plan; `greedy`: the terminal can use any rate.
    demand_bps: Rate | None = None
    greedy: bool = False
    efficiency: Annotated[float, Field(ge=0.001, le=1_000, allow_inf_nan=False)] | None = None
    owed_bits: Bits | None = None


class WhatIfBlockage(Model):
    """A blockage to plan with, at the terminal's antenna."""

    terminal: NodeNumber
    entry: Instant
    exit: Instant
    confidence: Confidence = 1.0


class WhatIfBody(Model):
    """What to plan with instead of what is known now; whatever is left out is as it is."""

    link: LinkName
    end: Instant | None = None
    capacity: Annotated[list[Step], Field(min_length=1, max_length=MOST_WHAT_IF_STEPS)] | None = (
        None
    )
    terminals: list[WhatIfTerminal] = Field(default_factory=list, max_length=MOST_WHAT_IF_TERMINALS)
    # Replaces all expected blockages.
    blockages: Annotated[list[WhatIfBlockage], Field(max_length=MOST_WHAT_IF_BLOCKAGES)] | None = (
        None
    )
    signalling_delay_ms: DelayMs | None = None
    one_way_delay_ms: DelayMs | None = None
    least_confidence: Confidence | None = None


class WhatIfTotal(Model):
    """What a terminal is given over the whole plan, and its fair share."""

    terminal: NodeNumber
    bits: int
    fair_bits: int


class WhatIf(Model):
    """The plan that would be made."""

    beam: BeamId
    link: LinkName
    issued: Instant
    start: Instant
    end: Instant
    capacity: list[Step]
    lines: list[Line]
    totals: list[WhatIfTotal]


class Share(Model):
    """What the plan in force gives to some terminals together, now."""

    terminals: int
    rate_bps: int


class LinkShares(Model):
    """A link's capacity as totals: of the vehicles that the caller sees, and of all others."""

    link: LinkName
    own: Share
    others: Share


class Shares(Model):
    """A beam's capacity as totals; a link without a plan in force is missing."""

    beam: BeamId
    time: Instant
    links: list[LinkShares]
