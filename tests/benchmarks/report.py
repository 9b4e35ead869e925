"""The report: one Markdown page of all saved results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.experiments import EXPERIMENTS
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.plots import plot_all
from tests.benchmarks.records import RESULTS, Record, Result, load

_OURS = "underpass"

_INTRODUCTION = """# What Underpass reaches

Made by `make bench` from the JSON files beside it; each experiment can be run alone by
`make bench ARGS="run NAME"`.

How it is measured: client, terminal, satlink, hub and origin in network namespaces of one
machine; all subjects of an experiment are up on the same satlink and meet the same seeds of loss;
before a series a subject has been idle for a minute; every byte is checked. A run that takes ten
times our median is ended (*censored*): a time then counts as the end's, a goodput by the bytes
until then. *p90* is the value that nine of ten runs reach or better. Profile G: 140 Mbit/s both
ways, 600 ms, 0.05 % loss, 2 s queue. Profile V: 40/2 Mbit/s, 560 ms, no loss, 1 s queue.
MB = 10⁶ bytes. *Ratio* is the other subject's median against ours, turned so that above 1 ours is
the better.
"""


def write_report(folder: Path = RESULTS) -> Path:
    """Plot every saved result and write the page that shows them."""
    path = folder / "REPORT.md"
    parts = [_INTRODUCTION]
    for name in EXPERIMENTS:
        saved = folder / f"{name}.json"
        if saved.exists():
            parts.append("\n".join(_section(saved, folder)))
    path.write_text("\n".join(parts))
    return path


def _section(saved: Path, folder: Path) -> Iterator[str]:
    result, machine = load(saved)
    yield f"## {result.experiment}\n"
    by_figure: dict[str, list[Record]] = {}
    for entry in result.records:
        by_figure.setdefault(entry.id, []).append(entry)
    for figure_id, entries in by_figure.items():
        yield from _table(figure_id, entries)
    yield from (f"![{plot.stem}]({plot.name})\n" for plot in plot_all(result, folder))
    for key, note in result.notes.items():
        if note:
            yield f"- {key}: {note}"
    yield (
        f"- machine: {machine['cores']} cores, Linux {machine['kernel']}, default "
        f"congestion control {machine['default_congestion_control']}, commit {machine['commit']}\n"
    )


def _table(figure_id: str, entries: list[Record]) -> Iterator[str]:
    figure = FIGURES[figure_id]
    target = "" if figure.target is None else f" Target: {figure.target:g} {figure.unit}"
    if figure.target_p90 is not None:
        target += f", p90 {figure.target_p90:g}"
    elsewhere = f" Elsewhere: {figure.elsewhere}." if figure.elsewhere else ""
    yield f"**{figure.title}** (`{figure.id}`).{target + '.' if target else ''}{elsewhere}\n"
    yield f"| subject | n | median, {figure.unit} | p90 | ratio | met | censored |"
    yield "|---|---|---|---|---|---|---|"
    ours = next((entry.median for entry in entries if entry.subject == _OURS), None)
    for entry in entries:
        met = {None: "", True: "yes", False: "no"}[entry.met]
        yield (
            f"| {entry.subject} | {entry.n} | {entry.median:.4g} | {entry.p90:.4g} "
            f"| {_ratio(entry, ours, more_is_better=figure.more_is_better)} | {met} "
            f"| {entry.censored or ''} |"
        )
    yield ""


def _ratio(entry: Record, ours: float | None, *, more_is_better: bool) -> str:
    if ours is None or entry.subject == _OURS:
        return ""
    numerator, denominator = (ours, entry.median) if more_is_better else (entry.median, ours)
    return f"{numerator / denominator:.2f}" if denominator > 0 else ""


def summary(results: list[Result]) -> str:
    """Return the figures of ours that have a target, a line each."""
    lines = [
        f"{'met   ' if entry.met else 'MISSED'}  {entry.id}: {entry.median:.4g} {entry.unit} "
        f"(p90 {entry.p90:.4g}; target {entry.target:g})"
        for result in results
        for entry in result.records
        if entry.subject == _OURS and entry.target is not None
    ]
    return "\n".join(lines)
