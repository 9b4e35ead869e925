"""Writes the tables of the project's README from the records, between markers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.campaign.manifest import load_manifest
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.records import RESULTS, Record
from tests.benchmarks.report import MixedError, saved_results, volumes

README = Path(__file__).parents[2] / "README.md"
_MARKED = re.compile(r"(<!-- figures: ([a-z-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_MISSING = "\N{EN DASH}"
# Rates from here on are rounded to hundreds.
_FEW = 1000.0

_COLUMNS = {
    "underpass": "Underpass",
    "kcptun": "kcptun",
    "kcptun-fast3": "kcptun, `fast3`",
    "no-proxy-bbr": "no proxy, BBR",
    "no-proxy-cubic": "no proxy, CUBIC",
}


class MarkerError(ValueError):
    """A page has no markers, or one for an unknown block."""


@dataclass(frozen=True)
class Records:
    """All records of a folder, and the text about their origin."""

    of: Mapping[tuple[str, str], Record]
    notes: Mapping[str, Mapping[str, object]]
    # By figure: one each, unless two volumes have it.
    origins: Mapping[str, Collection[str]]

    def median(self, figure: str, subject: str = "underpass") -> float | None:
        """Return a figure's median; None if it was not measured."""
        found = self.of.get((figure, subject))
        return found.median if found else None

    def origin(self, figures: Iterable[str]) -> str:
        """Return where these figures come from; refuse figures of several campaigns."""
        found = sorted({one for name in figures for one in self.origins.get(name, ())})
        if len(found) > 1:
            raise MixedError(f"one table has figures of several origins: {' '.join(found)}")
        return found[0] if found else ""


def collect(folder: Path = RESULTS) -> Records:
    """Read the records of a folder and of its volumes."""
    of: dict[tuple[str, str], Record] = {}
    notes: dict[str, Mapping[str, object]] = {}
    origins: dict[str, set[str]] = {}
    for source in (folder, *volumes(folder)):
        manifest = load_manifest(source)
        origin = (
            f"Measured in one campaign on commit {manifest.commit[:7]}."
            if manifest
            else "Measured before there were campaigns, at several commits."
        )
        for result, _ in saved_results(source):
            notes[result.experiment] = result.notes
            for entry in result.records:
                of[entry.id, entry.subject] = entry
                origins.setdefault(entry.id, set()).add(origin)
    return Records(of, notes, origins)


def rewritten(page: str, records: Records) -> str:
    """Return a page with new text between its markers, and all else unchanged."""

    def block(match: re.Match[str]) -> str:
        if match[2] not in _BLOCKS:
            raise MarkerError(f"no such figures: {match[2]}; there are {', '.join(_BLOCKS)}")
        return f"{match[1]}{_BLOCKS[match[2]](records)}\n{match[3]}"

    page, count = _MARKED.subn(block, page)
    if not count:
        raise MarkerError("the page has no markers for figures")
    return page


def write_readme() -> Path:
    """Write the figures of the report's records into the README."""
    README.write_text(rewritten(README.read_text(), collect(RESULTS)))
    return README


def _way_of_the_data(records: Records) -> str:
    ideal = records.notes.get("blockage-24mb", {}).get("ideal, s")
    ideal_s = float(str(ideal)) if ideal is not None else None
    rows: list[tuple[str, str, Callable[[float], str]]] = [
        ("first byte on a new connection", "first-byte.g", lambda rtt: f"{rtt:.1f} RTT"),
        ("1 MB object", "object-1mb.g", _seconds),
        ("8 MB object", "object-8mb.g", _seconds),
        ("8 MB object, vehicle", "object-8mb.v", _seconds),
    ]
    if ideal_s is not None:
        title = f"24 MB, vehicle, 20 s without a link (ideal {ideal_s:.1f} s)"
        rows.append((title, "blockage-24mb.v", lambda ratio: _seconds(ratio * ideal_s)))
    bridges = "goodput under bridges, vehicle: 3.6 s clear, 1.2 s blocked, in turn"
    rows.append((bridges, "highway.v", lambda percent: f"{percent:.0f} %"))
    subjects = [
        name
        for name in _COLUMNS
        if any(records.median(figure, name) is not None for _, figure, _ in rows)
    ]
    origin = records.origin(figure for _, figure, _ in rows)
    lines = [f"{origin}\n", _line(["", *(_COLUMNS[name] for name in subjects)])]
    lines.append("|---" * (1 + len(subjects)) + "|")
    for title, figure, shown in rows:
        lines.append(_line([title, *(_cell(records, figure, name, shown) for name in subjects)]))
    return "\n".join(lines)


def _cell(records: Records, figure: str, subject: str, shown: Callable[[float], str]) -> str:
    """Return a median as it is shown; "over" it if it is the time at which a run was ended."""
    found = records.of.get((figure, subject))
    if found is None:
        return _MISSING
    cut = 2 * found.censored >= found.n and not FIGURES[figure].more_is_better
    return f"over {shown(found.median)}" if cut else shown(found.median)


def _blockages(records: Records) -> str:
    names = [
        "survival.v",
        "resumption-p95.v",
        "kill-9.violations",
        "after-blockage.up.download",
    ]
    alive, p95, lost, small = map(records.median, names)
    resumed = records.of.get(("resumption.v", "underpass"))
    sentences = []
    if alive is not None:
        sentences.append(
            f"Of 1,000 downloads {alive:,.0f} lived through ten minutes without a link."
        )
    if resumed and p95 is not None:
        sentences.append(
            "From the link's return to the first new byte it took "
            f"{p95:.1f} round trips (p95 of {resumed.n} blockages)."
        )
    if lost is not None:
        sentences.append(
            "A hundred times `kill -9` lost or doubled "
            + ("no byte that was in custody." if lost == 0 else f"something {lost:.0f} times.")
        )
    if small is not None:
        sentences.append(
            "Behind 30 s without a link, with what twelve uploads had read on still waiting, a "
            f"new download of 10 kB takes a round trip and {small / 1000:.2f} s (p95)."
        )
    return f"{records.origin(names)}\n\n{' '.join(sentences)}"


def _allocation(records: Records) -> str:
    rows = [
        ("no blockage", "clear", "underpass"),
        ("blockage, splitting proxy", "blocked", "single-box"),
        ("blockage, Underpass without lending", "blocked", "underpass"),
        ("blockage, Underpass with borrow/repay", "lent", "underpass"),
    ]
    origin = records.origin(name for name in records.origins if name.startswith("allocation-down."))
    lines = [
        f"{origin}\n",
        _line(
            [
                "transmitted, Mbit",
                "in the tunnel: A",
                "the least of B, C, D",
                "Jain's index, N = 2 / 4 / 8",
            ]
        ),
        "|---|---|---|---|",
    ]
    for title, condition, subject in rows:
        name = f"allocation-down.{condition}"
        sent = [records.median(f"{name}.{part}", subject) for part in ("a", "others")]
        jain = [records.median(f"{name}.jain-{count}", subject) for count in (2, 4, 8)]
        fair = " / ".join(_MISSING if index is None else _index(index) for index in jain)
        cells = [_MISSING if mbit is None else f"{mbit:.1f}" for mbit in sent]
        lines.append(_line([title, *cells, fair]))
    return "\n".join(lines)


def _relay(records: Records) -> str:
    rows = [
        ("1 KiB", "chain-two.1k"),
        ("1 KiB, custody on disk", "chain-custody.1k"),
        ("64 KiB", "chain-two.64k"),
        ("1 MiB", "chain-two.1m"),
    ]
    lines = [
        f"{records.origin(name for _, name in rows)}\n",
        _line(["payload", "Underpass", "others"]),
        "|---|---|---|",
    ]
    for title, name in rows:
        rate, figure = records.median(name), FIGURES[name]
        shown = (
            _MISSING
            if rate is None
            else f"{rate:.1f} {figure.unit}"
            if rate < _FEW
            else f"{round(rate, -2):,.0f} {figure.unit}"
        )
        lines.append(_line([title, shown, figure.elsewhere]))
    return "\n".join(lines)


_BLOCKS: Mapping[str, Callable[[Records], str]] = {
    "way-of-the-data": _way_of_the_data,
    "blockages": _blockages,
    "allocation": _allocation,
    "relay": _relay,
}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def _index(value: float) -> str:
    return f"{value:.4f}" if value > 0.9995 else f"{value:.3f}"
