"""The report: a Markdown page for each campaign, and one with links to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import OURS
from tests.benchmarks.campaign.manifest import FILE, load_manifest
from tests.benchmarks.experiments import EXPERIMENTS
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.figures.figure import Figure
from tests.benchmarks.plots import plot_all, plot_names
from tests.benchmarks.records import RESULTS, SAMPLES, Record, Result, load
from tests.benchmarks.subjects import NAMES

_INTRODUCTION = """# What Underpass reaches

How it is measured: client, terminal, satlink, hub and origin in network namespaces of one
machine; all subjects of an experiment are up on the same satlink and meet the same seeds of loss;
before its first run a subject has been idle for a minute, or as long as the experiment's settings
say, and `underpass-second` is stopped and started again before each run; every byte is checked. A
run that takes ten times our first, or three minutes, is ended (*censored*): a time then counts as
the end's, a goodput by the bytes until then. *p90* is the value that nine of ten runs reach or
better. Profile G: 140 Mbit/s both ways, 600 ms, 0.05 % loss, 2 s queue. Profile V: 40/2 Mbit/s,
560 ms, no loss, 1 s queue. MB = 10⁶ bytes. *Ratio* is a subject's median against that of
`underpass`, turned so that above 1 `underpass` is the better. *Told* is what a subject knew of the
hop, and whether its connections were there before a run (warm) or not (cold).
"""

_LONGEST_NOTE = 600
_NO_CAMPAIGN = """## No campaign

These are single runs, not one campaign: each experiment names its commit and machine at its end.
"""


class MixedError(RuntimeError):
    """Results in one folder are of several campaigns; the text names the first that differs."""


def saved_results(folder: Path) -> list[tuple[Result, dict[str, Any]]]:
    """Return a folder's results with their machines; all must be of the folder's campaign.

    A folder without a manifest has only runs by themselves, none of a campaign.
    """
    manifest = load_manifest(folder)
    own = manifest.id if manifest else None
    found = []
    for path in folder.glob(f"*{SAMPLES}"):
        _check_campaign(path, json.loads(path.read_text())["campaign"], own)
    for path in sorted(folder.glob("*.json"), key=_place):
        if path.name == FILE or path.name.endswith(SAMPLES):
            continue
        result, where = load(path)
        _check_campaign(path, result.campaign, own)
        if manifest and where != manifest.machine:
            raise MixedError(f"{path} was measured on {where}, the campaign on {manifest.machine}")
        found.append((result, where))
    return found


def _check_campaign(path: Path, campaign: str | None, own: str | None) -> None:
    if campaign != own:
        raise MixedError(f"{path} is of {_which(campaign)}, its folder of {_which(own)}")


def volumes(folder: Path) -> list[Path]:
    """Return the subfolders that have a campaign."""
    return [path.parent for path in sorted(folder.glob(f"*/{FILE}"))]


def write_report(folder: Path = RESULTS) -> Path:
    """Plot every saved result and write the page that shows them, also for the volumes."""
    for volume in volumes(folder):
        write_report(volume)
    path = folder / "REPORT.md"
    text = report(folder)
    results = saved_results(folder)
    plots = {name for result, _ in results for name in plot_names(result)}
    for old in folder.glob("*.svg"):
        if old.name not in plots:
            old.unlink()
    for result, _ in results:
        plot_all(result, folder)
    path.write_text(text)
    return path


def report(folder: Path = RESULTS) -> str:
    """Return the page of a folder's results, with links to those of its volumes."""
    results = saved_results(folder)
    parts = [_INTRODUCTION]
    if found := volumes(folder):
        parts.append("\n".join(_contents(found)))
    if results or not found:
        parts.append(_origin(folder, results))
    parts += ["\n".join(_section(result, where)) for result, where in results]
    return "\n".join(parts)


def _contents(found: Sequence[Path]) -> Iterator[str]:
    yield "## Volumes\n"
    yield "Each is one campaign: one commit, one machine.\n"
    yield "| volume | commit | measured | processor | experiments |"
    yield "|---|---|---|---|---|"
    for volume in found:
        manifest = load_manifest(volume)
        assert manifest is not None
        measured = ", ".join(result.experiment for result, _ in saved_results(volume))
        yield (
            f"| [{volume.name}]({volume.name}/REPORT.md) | {manifest.commit[:8]} "
            f"| {manifest.started[:10]} | {manifest.machine['cpu']} | {measured} |"
        )
    yield ""


def _place(path: Path) -> tuple[int, str]:
    names = list(EXPERIMENTS)
    return names.index(path.stem) if path.stem in names else len(names), path.stem


def _which(campaign: str | None) -> str:
    return f"campaign {campaign}" if campaign else "no campaign"


def _origin(folder: Path, results: Sequence[tuple[Result, dict[str, Any]]]) -> str:
    """Return the results' common origin, or say that they have none."""
    manifest = load_manifest(folder)
    if manifest is None:
        before = folder / "BEFORE_CAMPAIGNS.md"
        commits = sorted({str(where["commit"]) for _, where in results})
        text = before.read_text() if before.exists() else _NO_CAMPAIGN
        return f"{text}\nCommits of these results, {len(commits)}: {', '.join(commits)}.\n"
    lines = [
        f"## Campaign {manifest.id}{': a trial' if manifest.trial else ''}\n",
        f"- commit {manifest.commit}, of a clean tree",
        f"- from {manifest.started} to {manifest.ended or '(not ended)'}, in "
        f"{len(manifest.portions)} portions; seeds from {manifest.seed}",
        *(f"- {name}: {value}" for name, value in manifest.machine.items() if name != "commit"),
        *(f"- {name} {version or '(not installed)'}" for name, version in manifest.peers.items()),
    ]
    missing = sorted(set(manifest.experiments) - {result.experiment for result, _ in results})
    if missing:
        lines.append(f"- not measured yet: {', '.join(missing)}")
    beside = [name for name, told in manifest.experiments.items() if told["beside others"]]
    if beside:
        lines.append(f"- measured beside each other, for they load the machine little: {beside}")
    # A note by the person who measured.
    if (notes := folder / "NOTES.md").exists():
        lines.append(f"\n{notes.read_text().strip()}")
    return "\n".join(lines) + "\n"


def _section(result: Result, machine: dict[str, Any]) -> Iterator[str]:
    yield f"## {result.experiment}\n"
    for figure_id, entries in _by_figure(result).items():
        yield from _table(figure_id, entries, result.told)
    yield from (f"![{name.removesuffix('.svg')}]({name})\n" for name in plot_names(result))
    for key, note in result.notes.items():
        if note:
            yield f"- {key}: {_shortened(str(note), result.experiment)}"
    if result.took_s is not None:
        yield f"- took: {result.took_s:.0f} s"
    if result.campaign is None:
        yield (
            f"- machine: {machine['cores']} cores, Linux {machine['kernel']}, default congestion "
            f"control {machine['default_congestion_control']}, commit {machine['commit']}"
        )
    yield ""


def _by_figure(result: Result) -> dict[str, list[Record]]:
    by_figure: dict[str, list[Record]] = {}
    for entry in result.records:
        by_figure.setdefault(entry.id, []).append(entry)
    return by_figure


def _shortened(note: str, experiment: str) -> str:
    # Raw samples are for programs: a page shows only their beginning.
    if len(note) <= _LONGEST_NOTE:
        return note
    return f"{note[:_LONGEST_NOTE]}… ([all of it]({experiment}.json))"


def _table(figure_id: str, entries: list[Record], told: dict[str, str]) -> Iterator[str]:
    figure, unit = FIGURES[figure_id], entries[0].unit
    asked = _target(figure)
    target = f" Target: {asked}." if asked else ""
    elsewhere = f" Elsewhere: {figure.elsewhere}." if figure.elsewhere else ""
    earlier = "" if unit == figure.unit else f" Measured by an earlier definition, in {unit}."
    yield f"**{figure.title}** (`{figure.id}`).{target}{elsewhere}{earlier}\n"
    yield f"| subject | told | n | median, {unit} | p90 | ratio | met | censored |"
    yield "|---|---|---|---|---|---|---|---|"
    ours = next((entry.median for entry in entries if entry.subject == OURS), None)
    for entry in entries:
        is_meant = entry.subject == figure.subject
        met = {None: "", True: "yes", False: "no"}[_meets(entry, entries) if is_meant else None]
        yield (
            f"| {entry.subject} | {told.get(entry.subject, 'not noted')} | {entry.n} "
            f"| {entry.median:.4g} | {entry.p90:.4g} "
            f"| {_ratio(entry, ours, more_is_better=figure.more_is_better)} | {met} "
            f"| {entry.censored or ''} |"
        )
    yield ""


def _meets(entry: Record, of_figure: Sequence[Record]) -> bool | None:
    """Tell whether a record meets its figure's targets; None if their units differ or none is set.

    `of_figure` are the records of all subjects. Ours is no rival of itself at its second start.
    """
    figure = FIGURES[entry.id]
    if entry.unit != figure.unit:
        return None
    met = figure.meets(entry.median, entry.p90, entry.values)
    others = [
        other.median
        for other in of_figure
        if other.subject != entry.subject and other.subject in NAMES
    ]
    if not figure.ahead or not others:
        return met
    is_ahead = all(
        figure.reaches(entry.median, other) and entry.median != other for other in others
    )
    return is_ahead and met is not False


def _target(figure: Figure) -> str:
    """Return what is asked of a figure, "" if nothing is."""
    target = "" if figure.target is None else f"{figure.target:g} {figure.unit}"
    if None not in (figure.target, figure.tolerance):
        target += f" ± {figure.tolerance:g}"
    if figure.target_p90 is not None:
        target += f", p90 {figure.target_p90:g}"
    target += ", in each run" if figure.in_each else ""
    if figure.ahead:
        target += f"{', and ' if target else ''}better than each other"
    return target


def _ratio(entry: Record, ours: float | None, *, more_is_better: bool) -> str:
    if ours is None or entry.subject == OURS:
        return ""
    numerator, denominator = (ours, entry.median) if more_is_better else (entry.median, ours)
    return f"{numerator / denominator:.2f}" if denominator > 0 else ""


def summary(results: list[Result]) -> str:
    """Return the figures that have a target, a line each, of the target's subject."""
    lines = [
        f"{'met   ' if met else 'MISSED'}  {entry.id}: {entry.median:.4g} {entry.unit} "
        f"(p90 {entry.p90:.4g}; target {_target(FIGURES[entry.id])})"
        for result in results
        for entries in _by_figure(result).values()
        for entry in entries
        if entry.subject == FIGURES[entry.id].subject
        and (met := _meets(entry, entries)) is not None
    ]
    return "\n".join(lines)
