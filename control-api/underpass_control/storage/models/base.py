"""What the tables share: types, the names of constraints, and keys."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# Constraints need names to be changed by a migration, on SQLite above all.
_NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
# SQLite counts rows up by themselves only in a column of exactly this type.
RowId = BigInteger().with_variant(Integer(), "sqlite")
# Sorts a mixin's columns before the table's own, which a key that starts with them needs.
FIRST = -1


def first_revision() -> int:
    """Return the revision of a row that is made now.

    It is above all that a row had before it under the same key, which callers may still know.
    """
    return time.time_ns() // 1_000_000


class Base(DeclarativeBase):
    """All tables."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012
        int: BigInteger,
        float: Float(53),
        dict[str, Any]: JSON,
        list[str]: JSON,
        list[int]: JSON,
    }


class OfTerminalLink:
    """A key that starts with a direction of a terminal's link; rows go with the terminal."""

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, sort_order=FIRST
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True, sort_order=FIRST)


class OfBeamLink:
    """A key that starts with a link of a beam; rows go with the beam."""

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True, sort_order=FIRST
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True, sort_order=FIRST)


class OfNamedLink:
    """A key that starts with a link of a beam, with no foreign key of its own to the beam."""

    beam_id: Mapped[str] = mapped_column(String(64), primary_key=True, sort_order=FIRST)
    link: Mapped[str] = mapped_column(String(8), primary_key=True, sort_order=FIRST)
