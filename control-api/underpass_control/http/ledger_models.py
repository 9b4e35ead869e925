"""The API's models of the ledger and of fairness.

Amounts of the ledger and of plans are bits of capacity: bits that the beam carries at
efficiency 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from underpass_control.http.models import BeamId, Instant, Model, Name, NodeNumber, Page

LinkName = Literal["forward", "return"]


class LedgerQuery(Page):
    """Which entries: those that begin from `since` to before `until`, of a link, of a terminal."""

    link: LinkName | None = None
    terminal: NodeNumber | None = None
    since: Instant | None = None
    until: Instant | None = None
    order: Literal["time", "newest"] = "time"


class Posting(Model):
    """A terminal's side of an entry: above 0 it is owed so many bits more."""

    terminal: NodeNumber
    bits: int


class LedgerEntry(Model):
    """What changed hands in a period; its postings sum to zero.

    What is forgiven has the rule by which it is: `unused`, `expired`, `left`, or `operator` with
    the reason and the name of the token.
    """

    id: int
    link: LinkName
    start: Instant
    end: Instant
    kind: Literal["settled", "forgiven"]
    rule: Literal["unused", "expired", "left", "operator"] | None = None
    reason: str | None = None
    made_by: str | None = None
    postings: list[Posting]


class LedgerPage(Model):
    """A page of entries, in order of time."""

    entries: list[LedgerEntry]
    next: str | None = None


class LinkQuery(Model):
    """One link, or both."""

    link: LinkName | None = None


class Balance(Model):
    """Above 0 the others owe it to the terminal, below it owes them; the oldest part's time."""

    terminal: NodeNumber
    bits: int
    since: Instant


class LinkBalances(Model):
    """Every balance of a link that is not zero, as far as it is settled; they sum to zero."""

    link: LinkName
    settled_until: Instant | None = None
    balances: list[Balance]


class BeamBalances(Model):
    """The balances of a beam."""

    beam: BeamId
    links: list[LinkBalances]


class ForgiveBody(Model):
    """What is forgiven of what a terminal owes or is owed: so many bits, or all; and why."""

    link: LinkName
    terminal: NodeNumber
    bits: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    reason: Name


class FairnessQuery(Model):
    """From `since` to before `until` (now), in whole periods of 10 s."""

    since: Instant
    until: Instant | None = None
    link: LinkName | None = None

    @model_validator(mode="after")
    def _in_order(self) -> FairnessQuery:
        if self.until is not None and self.until <= self.since:
            raise ValueError("until is not after since")
        return self


class TerminalShare(Model):
    """What a terminal sent, what the plans gave it, and what was blocked.

    `sent_bits` and `offered_bits` are bits of IP and of streams; `planned_bits` and `fair_bits`
    (its fair share, blockages apart) bits of capacity, as far as they are settled.
    """

    terminal: NodeNumber
    weight: int
    throughput_bps: int
    sent_bits: int
    offered_bits: int
    planned_bits: int
    fair_bits: int
    blocked_ms: int


class LinkFairness(Model):
    """Jain's index of the throughputs of all that sent or wanted to; and of them by weight."""

    link: LinkName
    jain: float | None = None
    jain_by_weight: float | None = None
    terminals: list[TerminalShare]


class BeamFairness(Model):
    """How fair a beam was in a time."""

    beam: BeamId
    since: Instant
    until: Instant
    links: list[LinkFairness]
