"""Which terminals of a beam something is read of: all, or some of them."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement

from underpass_control.storage.models import Terminal

# A statement has so many parameters at most; of more terminals, all of the beam are read.
_MOST_NAMED = 1_000


def among(beam: str, terminals: Collection[int] | None) -> ColumnElement[bool]:
    """Return the condition that a terminal is in a beam and, if they are few, one of `terminals`.

    None: any of the beam.
    """
    in_beam = Terminal.beam_id == beam
    if terminals is None or len(terminals) > _MOST_NAMED:
        return in_beam
    return in_beam & Terminal.node.in_(terminals)
