"""Blockages: those that were expected, and those that were observed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from dama.prediction.same import Span, has_begun
from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.changes import Change, listed
from underpass_control.storage.membership import among
from underpass_control.storage.models import Blockage as Table
from underpass_control.storage.models import LinkState, PredictedBlockage, Terminal

# The largest distance between an expected and an observed entry.
_LONGEST_MS = 2 * 3_600_000
# Observed blockages of one statement: SQLite takes expressions of a depth of 1,000.
_AT_ONCE = 100
# The sources that observe a link; a plan or an operator only forbids its use.
_SENSED = frozenset({"modem", "probing"})
# Joins the links' states, and tells whether a blockage is on the beam's path. If no path follows a
# plan, it is unknown which one is the beam's.
SAME_LINK = and_(LinkState.terminal == Table.terminal, LinkState.link == Table.link)
OF_BEAM = or_(LinkState.plan.is_(None), LinkState.path == Table.path)

# By terminal and direction, the path that follows the beam's plan, where one is known.
BeamPaths = Mapping[tuple[int, str], str]


@dataclass(frozen=True, slots=True)
class Observed:
    """A blockage that a node has observed; `exit_ms` is None while it lasts."""

    terminal: int
    link: str
    path: str
    entry_ms: int
    exit_ms: int | None
    # Whether the node has reported the exit; if not, a later report had the path up, or not at all.
    exit_reported: bool
    source: str
    received_ms: int
    predicted: int | None = None
    entry_error_ms: int | None = None
    exit_error_ms: int | None = None
    # Only in reports: the node had not heard its peer since its process began.
    unheard: bool = False

    @property
    def is_sensed(self) -> bool:
        """Whether it was observed on the link itself, not set by a plan or an operator."""
        return self.source in _SENSED

    def is_beside(self, beam_paths: BeamPaths) -> bool:
        """Tell whether it is on another path than the beam's, and so does not concern the beam."""
        return beam_paths.get((self.terminal, self.link), self.path) != self.path

    @property
    def key(self) -> tuple[int, str, str, int]:
        """The key by which two reports are of the same blockage."""
        return self.terminal, self.link, self.path, self.entry_ms

    def spans(self, time_ms: int) -> bool:
        """Tell whether a time is within it."""
        return self.entry_ms <= time_ms and (self.exit_ms is None or time_ms < self.exit_ms)


_COLUMNS = tuple(one.name for one in fields(Observed) if one.name != "unheard")
_values = attrgetter(*_COLUMNS)
_KEY = _COLUMNS[:4]
_CHANGED = ("exit_ms", "exit_reported", "predicted", "entry_error_ms", "exit_error_ms")
_PUT = BulkInsert(
    Table,
    _COLUMNS,
    f"({', '.join(_KEY)}) DO UPDATE SET "
    + ", ".join(f"{name} = COALESCE(excluded.{name}, blockage.{name})" for name in _CHANGED)
    + " WHERE excluded.exit_reported OR NOT blockage.exit_reported",
)


async def observe(
    connection: AsyncConnection, reports: Sequence[Observed], beam_paths: BeamPaths
) -> list[Observed]:
    """Store observed blockages with their expectations; return the new or changed ones."""
    merged: dict[tuple[int, str, str, int], Observed] = {}
    for report in await _joined(connection, reports):
        known = merged.get(report.key)
        if known is None or (report.exit_reported and not known.exit_reported):
            merged[report.key] = report
    if not merged:
        return []
    stored = await _stored(connection, merged.values())
    news = [
        one
        for key, one in merged.items()
        if key not in stored or (one.exit_reported and not stored[key].exit_reported)
    ]
    expected = await _expected(connection, news)
    found = [_compared(one, expected, beam_paths) for one in news]
    await _PUT.execute(connection, sorted(map(_values, found)))
    return found


@dataclass(frozen=True, slots=True)
class Paths:
    """All paths of a terminal's link in one direction, as the node that sends there has them."""

    time_ms: int
    # Which of them are up.
    is_up: Mapping[str, bool]

    def is_over(self, one: Observed) -> bool:
        """Tell whether a blockage of the link is over: its path is up again, or there no more."""
        return self.time_ms > one.entry_ms and self.is_up.get(one.path, True)


async def lift(
    connection: AsyncConnection, paths: Mapping[tuple[int, str], Paths], beam_paths: BeamPaths
) -> list[Observed]:
    """End the blockages whose path has been up since, or is no longer there; return them.

    Takes the paths of links, by terminal and direction.
    """
    rows = await connection.execute(
        select(Table.__table__).where(
            Table.terminal.in_({terminal for terminal, _ in paths}), Table.exit_ms.is_(None)
        )
    )
    over = []
    for row in rows:
        one = of_row(row._asdict())
        seen = paths.get((one.terminal, one.link))
        if seen is not None and seen.is_over(one):
            over.append(replace(one, exit_ms=seen.time_ms))
    expected = await _expected(connection, over)
    over = [_compared(one, expected, beam_paths) for one in over]
    await _PUT.execute(connection, sorted(map(_values, over)))
    return over


async def newest(
    connection: AsyncConnection,
    beam: str,
    since_ms: int,
    terminals: Collection[int] | None = None,
) -> dict[int, tuple[int, int | None]]:
    """Return the last loss of link of each terminal of a beam, or of some.

    That is its entry and its exit, if any.
    """
    rows = await connection.execute(
        select(Table.terminal, Table.entry_ms, Table.exit_ms)
        .join(Terminal, Terminal.node == Table.terminal)
        .outerjoin(LinkState, SAME_LINK)
        .where(
            among(beam, terminals),
            OF_BEAM,
            Table.entry_ms >= since_ms,
            Table.source.in_(_SENSED),
        )
        .order_by(Table.entry_ms)
    )
    return {row.terminal: (row.entry_ms, row.exit_ms) for row in rows}


async def _joined(connection: AsyncConnection, reports: Sequence[Observed]) -> Sequence[Observed]:
    """Return the reports, with each blockage under the entry by which it is known.

    A node that is started anew, or upgraded, inside a blockage reports it a second time. It has not
    heard its peer by then, so the link was not up in between, as far as anybody knows.
    """
    unheard = [one for one in reports if one.unheard]
    # By path and entry, those that are stored, and those of the reports so far.
    known: dict[tuple[int, str, str], dict[int, Observed]] = {one.key[:3]: {} for one in unheard}
    for start in range(0, len(unheard), _AT_ONCE):
        last = map(_last_before, unheard[start : start + _AT_ONCE])
        for row in await connection.execute(select(Table.__table__).where(or_(*last))):
            one = of_row(row._asdict())
            known[one.key[:3]][one.entry_ms] = one
    joined = []
    for report in reports:
        of_path = known.get(report.key[:3], {})
        one = _within(report, of_path) if report.unheard else report
        joined.append(one)
        if one.exit_ms is not None or one.entry_ms not in of_path:
            of_path[one.entry_ms] = one
    return joined


def _within(report: Observed, known: Mapping[int, Observed]) -> Observed:
    """Return a report under the entry of the last blockage before it, if that lasted until then."""
    entry_ms = max((at_ms for at_ms in known if at_ms <= report.entry_ms), default=None)
    if entry_ms is None or not known[entry_ms].spans(report.entry_ms):
        return report
    return replace(report, entry_ms=entry_ms, source=known[entry_ms].source)


def _last_before(report: Observed) -> ColumnElement[bool]:
    """Select the last blockage of a link that began no later than a reported one."""
    before = aliased(Table)
    last = select(func.max(before.entry_ms)).where(
        before.terminal == report.terminal,
        before.link == report.link,
        before.path == report.path,
        before.entry_ms <= report.entry_ms,
    )
    return and_(
        Table.terminal == report.terminal,
        Table.link == report.link,
        Table.path == report.path,
        Table.entry_ms == last.scalar_subquery(),
    )


async def _stored(
    connection: AsyncConnection, reports: Collection[Observed]
) -> dict[tuple[int, str, str, int], Observed]:
    keys = [(one.terminal, one.entry_ms) for one in reports]
    rows = await connection.execute(
        select(Table.__table__).where(tuple_(Table.terminal, Table.entry_ms).in_(keys))
    )
    stored = (of_row(row._asdict()) for row in rows)
    return {one.key: one for one in stored}


async def _expected(
    connection: AsyncConnection, observed: Sequence[Observed]
) -> dict[int, list[Any]]:
    """Return what was expected of the terminals, about the times of what was observed.

    Each is looked up by itself, so one that is reported after months costs no more than another.
    """
    told = sorted({(one.terminal, one.entry_ms) for one in observed if one.is_sensed})
    found: dict[int, dict[int, Any]] = {}
    for start in range(0, len(told), _AT_ONCE):
        near = (
            and_(
                PredictedBlockage.terminal == terminal,
                PredictedBlockage.entry_ms.between(entry_ms - _LONGEST_MS, entry_ms + _LONGEST_MS),
            )
            for terminal, entry_ms in told[start : start + _AT_ONCE]
        )
        query = select(PredictedBlockage.__table__).where(or_(*near))
        for row in await connection.execute(query):
            found.setdefault(row.terminal, {})[row.id] = row
    return {terminal: list(rows.values()) for terminal, rows in found.items()}


def _compared(
    one: Observed, expected: Mapping[int, Sequence[Any]], beam_paths: BeamPaths
) -> Observed:
    """Return what was observed with the expectation that it fulfils, and the errors of that."""
    if not one.is_sensed or one.is_beside(beam_paths):
        return one
    same = [
        row
        for row in expected.get(one.terminal, ())
        if has_begun(Span(row.obstruction, row.entry_ms, row.exit_ms), one.entry_ms)
    ]
    if not same:
        return one
    row = min(same, key=lambda row: abs(row.entry_ms - one.entry_ms))
    return replace(
        one,
        predicted=row.id,
        entry_error_ms=row.entry_ms - one.entry_ms,
        exit_error_ms=None if one.exit_ms is None else row.exit_ms - one.exit_ms,
    )


def of_row(row: Mapping[str, Any]) -> Observed:
    """Return what a row of the table holds."""
    return Observed(*(row[name] for name in _COLUMNS))


def changes_of(observed: Iterable[Observed], beam_paths: BeamPaths) -> Iterator[Change]:
    """Return what is announced of observed blockages, some in each change."""

    def told(one: Observed) -> dict[str, Any]:
        return shown(one) | ({"beside": True} if one.is_beside(beam_paths) else {})

    return listed("blockages", map(told, observed))


def shown(one: Observed) -> dict[str, Any]:
    """Return an observed blockage as the API shows it."""
    document = {"state": "observed", **asdict(one), "entry": rfc3339(moment_of(one.entry_ms))}
    if one.exit_ms is not None:
        document["exit"] = rfc3339(moment_of(one.exit_ms))
    for name in ("entry_ms", "exit_ms", "exit_reported", "received_ms", "unheard"):
        del document[name]
    return {name: value for name, value in document.items() if value is not None}


def sensed(change: Mapping[str, Any]) -> Iterator[tuple[int, int, int | None]]:
    """Yield the losses of the beam's links in a change of the kind `blockages`.

    Yields terminals, with entries and exits in ms (None while it lasts).
    """
    for one in change["blockages"]:
        if _is_of_beam(one) and one["source"] in _SENSED:
            yield one["terminal"], *_span(one)


def held_back(change: Mapping[str, Any]) -> Iterator[tuple[int, int, int | None, bool]]:
    """Yield when nodes only held back on the beam's links, in a change of the kind `blockages`.

    Yields terminals, with entries and exits in ms (None while it lasts), and whether by plan.
    """
    for one in change["blockages"]:
        if _is_of_beam(one) and one["source"] not in _SENSED:
            yield one["terminal"], *_span(one), one["source"] == "plan"


def _is_of_beam(one: Mapping[str, Any]) -> bool:
    return one["state"] == "observed" and not one.get("beside")


def _span(one: Mapping[str, Any]) -> tuple[int, int | None]:
    exit_ms = milliseconds_of(one["exit"]) if "exit" in one else None
    return milliseconds_of(one["entry"]), exit_ms
