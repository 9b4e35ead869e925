"""The types, constraint names and keys that the tables share."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# A migration can change only constraints that have names, especially on SQLite.
_NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
# SQLite numbers new rows by itself only if the key has exactly this type.
RowId = BigInteger().with_variant(Integer(), "sqlite")
# Puts a mixin's columns before the table's own, so that the key starts with them.
FIRST = -1


def first_revision() -> int:
    """Return the revision of a new row.

    It exceeds every revision that an earlier row of the same key had: callers may still know those.
    """
    return time.time_ns() // 1_000_000


class Base(DeclarativeBase):
    """The base of all tables."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012
        int: BigInteger,
        float: Float(53),
        dict[str, Any]: JSON,
        list[str]: JSON,
        list[int]: JSON,
    }


class OfTerminalLink:
    """A key that starts with a terminal and a link; deleting the terminal deletes its rows."""

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, sort_order=FIRST
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True, sort_order=FIRST)


class OfBeamLink:
    """A key that starts with a beam and a link; deleting the beam deletes its rows."""

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True, sort_order=FIRST
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True, sort_order=FIRST)


class OfNamedLink:
    """A key that starts with a beam and a link, without a foreign key to the beam."""

    beam_id: Mapped[str] = mapped_column(String(64), primary_key=True, sort_order=FIRST)
    link: Mapped[str] = mapped_column(String(8), primary_key=True, sort_order=FIRST)
