"""Plots of the curves and of the figures, as SVG."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.benchmarks.figures import FIGURES
from tests.benchmarks.records import Record, Result

mpl.use("svg")
# The same figures give the same file, so that commits show only real changes.
mpl.rcParams["svg.hashsalt"] = "underpass"

from matplotlib import pyplot as plt  # noqa: E402 - after the choice of what it draws with

_WIDTH, _HEIGHT = 8.0, 4.5


def plot_all(result: Result, folder: Path) -> None:
    """Plot a result's curves and its figures with several subjects."""
    for title, lines in result.curves.items():
        _lines(result.experiment, title, lines, folder)
    for entries in _barred(result):
        _bars(entries, folder)


def plot_names(result: Result) -> list[str]:
    """Return the names of the files that `plot_all` makes."""
    curves = [_curve_name(result.experiment, title) for title in result.curves]
    return curves + [_bar_name(entries) for entries in _barred(result)]


def _barred(result: Result) -> list[list[Record]]:
    """Return the records of each figure to show as bars."""
    by_figure: dict[str, list[Record]] = {}
    for entry in result.records:
        by_figure.setdefault(entry.id, []).append(entry)
    # A figure with many variants is easier to read as curves.
    if len(by_figure) > 6:
        return []
    return [entries for entries in by_figure.values() if len(entries) > 1]


def _curve_name(experiment: str, title: str) -> str:
    return f"{experiment}-{_slug(title)}.svg"


def _bar_name(entries: list[Record]) -> str:
    return f"{_slug(entries[0].id)}.svg"


def _lines(
    experiment: str, title: str, lines: dict[str, list[tuple[float, float]]], folder: Path
) -> None:
    figure, axes = plt.subplots(figsize=(_WIDTH, _HEIGHT))
    for name, points in lines.items():
        few = len(points) < 20
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=name,
            linewidth=2.5 if name.startswith("underpass") else 1.3,
            marker="o" if few else None,
        )
    axes.set_title(f"{experiment}: {title}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, folder / _curve_name(experiment, title))


def _bars(entries: list[Record], folder: Path) -> None:
    about, unit = FIGURES[entries[0].id], entries[0].unit
    figure, axes = plt.subplots(figsize=(_WIDTH, 0.45 * len(entries) + 1.5))
    names = [entry.subject for entry in entries]
    spread = [abs(entry.p90 - entry.median) for entry in entries]
    lower = [
        0.0 if entry.p90 >= entry.median else gap
        for entry, gap in zip(entries, spread, strict=True)
    ]
    upper = [
        gap if entry.p90 >= entry.median else 0.0
        for entry, gap in zip(entries, spread, strict=True)
    ]
    colours = ["tab:blue" if name.startswith("underpass") else "tab:gray" for name in names]
    axes.barh(names, [entry.median for entry in entries], xerr=[lower, upper], color=colours)
    if about.target is not None and about.unit == unit:
        axes.axvline(
            about.target, color="tab:red", linestyle="--", label=f"target {about.target:g}"
        )
        axes.legend()
    axes.invert_yaxis()
    axes.set_xlabel(f"{unit}: median, and the value that nine of ten runs reach or better")
    axes.set_title(about.title, fontsize=10)
    _save(figure, folder / _bar_name(entries))


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
