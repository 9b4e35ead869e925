"""The terminals that a statement is about: all of a beam, or some that it names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.models import Terminal

# The most terminals that a statement names. It has a parameter for each, and SQLite accepts 32,766
# of them, asyncpg 32,767.
_MOST_NAMED = 1_000

T = TypeVar("T")


def portions_of(many: Collection[T]) -> Iterator[Sequence[T]]:
    """Yield the terminals in portions that a statement may name; nothing if there are none."""
    ordered = list(many)
    for start in range(0, len(ordered), _MOST_NAMED):
        yield ordered[start : start + _MOST_NAMED]


def among(beam: str, terminals: Collection[int] | None) -> ColumnElement[bool]:
    """Return the condition that a terminal is in a beam and, if they are few, one of `terminals`.

    None, or more than a statement may name: any of the beam.
    """
    in_beam = Terminal.beam_id == beam
    if terminals is None or len(terminals) > _MOST_NAMED:
        return in_beam
    return in_beam & Terminal.node.in_(terminals)


async def kept(connection: AsyncConnection, terminals: Collection[int]) -> set[int]:
    """Return which of these terminals there are; none is deleted until the transaction ends."""
    found: set[int] = set()
    for some in portions_of(terminals):
        query = select(Terminal.node).where(Terminal.node.in_(some))
        found.update(await connection.scalars(query.with_for_update(read=True, key_share=True)))
    return found
