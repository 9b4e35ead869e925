"""Tags of terminals: words that operators group vehicles by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.models import Terminal, TerminalTag

MOST_TAGS = 10
LONGEST_TAG = 32
# A character that no tag has.
SEPARATOR = ";"
# The most terminals in one statement.
_AT_ONCE = 500

# A terminal's tags, as a column beside its own.
OF_TERMINAL: ColumnElement[str | None] = (
    select(func.aggregate_strings(TerminalTag.tag, SEPARATOR))
    .where(TerminalTag.terminal == Terminal.node)
    .correlate(Terminal)
    .scalar_subquery()
    .label("tags")
)


def tags_of(row: Row[Any]) -> list[str]:
    """Return the tags of a row that has `OF_TERMINAL`, in order."""
    return sorted(row.tags.split(SEPARATOR)) if row.tags else []


def tagged(tag: str) -> ColumnElement[bool]:
    """Return the condition that a terminal has a tag."""
    return Terminal.node.in_(select(TerminalTag.terminal).where(TerminalTag.tag == tag))


async def put_tags(connection: AsyncConnection, tags: Mapping[int, Sequence[str]]) -> None:
    """Set the tags of terminals, in place of all former ones."""
    nodes = sorted(tags)
    for start in range(0, len(nodes), _AT_ONCE):
        some = nodes[start : start + _AT_ONCE]
        await connection.execute(delete(TerminalTag).where(TerminalTag.terminal.in_(some)))
        rows = [{"terminal": node, "tag": tag} for node in some for tag in sorted(set(tags[node]))]
        if rows:
            await connection.execute(insert(TerminalTag), rows)


async def page_of_tags(
    connection: AsyncConnection, *, after: str | None, limit: int
) -> Sequence[Row[str, int]]:
    """Return the tags after a given one, in order, each with its number of terminals."""
    query = (
        select(TerminalTag.tag, func.count().label("terminals"))
        .group_by(TerminalTag.tag)
        .order_by(TerminalTag.tag)
        .limit(limit)
    )
    if after is not None:
        query = query.where(TerminalTag.tag > after)
    return (await connection.execute(query)).all()
