"""The API's models of interventions, by which operators overrule the planner."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from underpass_control.http.models import BeamId, Instant, Model, Name, NodeNumber, Page, Rate

KindName = Literal["freeze", "rate", "maintenance", "withdrawal"]
BlockageNumber = Annotated[int, Field(ge=1, le=2**53)]


class _Settable(Model):
    """What may be changed later, too."""

    until: Instant | None = None
    # For a rate, the terminal's rate; for a beam's maintenance, the remaining capacity. Without a
    # value, that link is unchanged.
    forward_bps: Rate | None = None
    return_bps: Rate | None = None
    note: Name | None = None


class InterventionBody(_Settable):
    """An intervention, as it is made. It begins at once where there is no `from`.

    `freeze` is of a beam, `rate` of a terminal, `maintenance` of either, `withdrawal` of a
    `blockage`, by its id.
    """

    kind: KindName
    beam: BeamId | None = None
    terminal: NodeNumber | None = None
    # `from` is a keyword of Python.
    from_: Annotated[Instant | None, Field(alias="from")] = None
    blockage: BlockageNumber | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> InterventionBody:
        needed, allowed = _MEMBERS[self.kind]
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        given -= {"kind", "note"}
        names = {"from_": "from"}
        for name in sorted(needed - given):
            raise ValueError(f"a {self.kind} needs {names.get(name, name)}")
        for name in sorted(given - needed - allowed):
            raise ValueError(f"a {self.kind} has no {names.get(name, name)}")
        if self.kind == "maintenance" and (self.beam is None) == (self.terminal is None):
            raise ValueError("maintenance is of a beam or of a terminal: name one of them")
        if self.kind == "rate" and self.forward_bps is None and self.return_bps is None:
            raise ValueError("a rate needs forward_bps, return_bps, or both")
        if self.terminal is not None and self.kind == "maintenance" and _rates(self):
            raise ValueError("a terminal that is in maintenance has no rates")
        if self.beam is not None and self.kind == "maintenance" and not _rates(self):
            raise ValueError(
                "the maintenance of a beam needs forward_bps, return_bps, or both: what the beam "
                "still carries, 0 for nothing"
            )
        return self


# By kind: the members that it needs, and those that it may have in addition to `note`.
_MEMBERS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "freeze": (frozenset({"beam", "until"}), frozenset({"from_"})),
    "rate": (frozenset({"terminal", "until"}), frozenset({"from_", "forward_bps", "return_bps"})),
    "maintenance": (
        frozenset({"until"}),
        frozenset({"beam", "terminal", "from_", "forward_bps", "return_bps"}),
    ),
    "withdrawal": (frozenset({"blockage"}), frozenset()),
}


def _rates(body: InterventionBody) -> bool:
    return body.forward_bps is not None or body.return_bps is not None


class InterventionChange(_Settable):
    """What is different from now on; what is left out stays as it is."""


class Intervention(_Settable):
    """An intervention, and who has set it or has changed it last.

    Callers of a tenant are told those of its vehicles, without who has set them.
    """

    id: int
    kind: KindName
    state: Literal["ahead", "in force", "ended"]
    # For a terminal's intervention: its present beam.
    beam: BeamId
    terminal: NodeNumber | None = None
    from_: Annotated[Instant, Field(alias="from")]
    # For a withdrawal: the blockage, as predicted now.
    obstruction: str | None = None
    entry: Instant | None = None
    exit: Instant | None = None
    set_by: str | None = None
    set_at: Instant
    # The value, in quotes, that `If-Match` needs to change or release it.
    revision: int


class InterventionQuery(Page):
    """Which interventions: in order of their numbers.

    Those that have ended, or have been released, only if asked for.
    """

    beam: BeamId | None = None
    terminal: NodeNumber | None = None
    kind: KindName | None = None
    ended: bool = False


class InterventionList(Model):
    """A page of interventions."""

    interventions: list[Intervention]
    next: str | None = None
