"""A comparison of two commits: pairs of runs, one with the programs of each, in turns."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.benchmarks.bench import OURS, say
from tests.benchmarks.campaign.course import started
from tests.benchmarks.campaign.manifest import CampaignError, clean_commit, now, sha256
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.records import Record, git, load, machine, write_whole
from tests.testbed.profile import PROFILE_V

_ROOT = Path(__file__).parents[2]
# Both commits' sources, what the compiler makes of them, and finished programs.
_BUILT = _ROOT / "target" / "compare"
_PROGRAMS = ("underpass", "satlink")

# The other commit, and the present one.
Side = Literal["base", "head"]
_SIDES: tuple[Side, Side] = ("base", "head")

# How many runs each side has in a pair; the median of them counts.
RUNS = {
    "object-1mb": 5,
    "object-8mb-no-loss": 5,
    "object-8mb": 5,
    "bulk-200mb": 2,
    "upload": 1,
    "echo": 1,
    "loopback-cost": 1,
}
_LINK, _PROCESSOR = 1.01, 1.03
# The most that the present commit's value may be of the other's, or the inverse if more is better.
LIMITS = {
    **dict.fromkeys(
        ("object-1mb.g", "object-8mb.g0", "object-8mb.g", "bulk-200mb.g", "upload-10mb.v"), _LINK
    ),
    "echo.v": _LINK,
    **{
        f"loopback-cost-{streams}.{kind}": _PROCESSOR
        for streams in (1, 64)
        for kind in ("instructions", "cpu")
    },
}
# Figures that begin to count after a time which is there in any case: it belongs to the ratio.
_ADDED = {"echo.v": PROFILE_V.rtt_ms}
_CONFIDENCE = 0.95


@dataclass
class Row:
    """One figure of one subject: the runs of each pair, in the figure's unit."""

    figure: str
    subject: str
    limit: float
    base: list[list[float]] = field(default_factory=list)
    head: list[list[float]] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """Return each pair's ratio: above 1 the present commit is worse.

        A pair in which neither side moved anything has none.
        """
        added, more_is_better = _ADDED.get(self.figure, 0.0), FIGURES[self.figure].more_is_better
        found = []
        for pair in zip(self.base, self.head, strict=True):
            base, head = (statistics.median(runs) + added for runs in pair)
            worse, better = (base, head) if more_is_better else (head, base)
            if better > 0:
                found.append(worse / better)
            elif worse > 0:
                found.append(math.inf)
        return found

    def verdict(self) -> Verdict | None:
        """Judge it; None if no pair has moved anything."""
        return judged(self.ratios(), self.limit)


@dataclass(frozen=True)
class Verdict:
    """The median of the pairs' ratios, with the interval in which it lies with a confidence."""

    median: float
    low: float
    high: float
    confidence: float
    met: bool
    # Whether the whole interval is on that side of the limit.
    certain: bool


def order(pair: int) -> tuple[Side, Side]:
    """Return which side runs first in a pair, from 0: they take turns, so drift favours none."""
    return _SIDES if pair % 2 == 0 else (_SIDES[1], _SIDES[0])


def judged(ratios: Sequence[float], limit: float) -> Verdict | None:
    """Judge ratios by their median, with the sign test's interval; None if there are none.

    That is the narrowest pair of ratios, as far from the least as from the greatest, with a
    confidence of 95 %; with fewer than six ratios, the least and the greatest, and less confidence.
    """
    if not ratios:
        return None
    ordered, count = sorted(ratios), len(ratios)

    def confidence(place: int) -> float:
        outside = sum(math.comb(count, fewer) for fewer in range(place + 1))
        return max(0.0, 1 - 2 * outside / (1 << count))

    places = range((count - 1) // 2 + 1)
    place = max((at for at in places if confidence(at) >= _CONFIDENCE), default=0)
    low, high = ordered[place], ordered[-1 - place]
    median = statistics.median(ordered)
    return Verdict(
        median=median,
        low=low,
        high=high,
        confidence=confidence(place),
        met=median <= limit,
        certain=high <= limit or low > limit,
    )


# Makes the runs of one side of a pair of an experiment, with a seed; returns the saved result.
Measure = Callable[[Side, int, str, int], Path]


@dataclass
class Comparison:
    """All pairs of one call; `id` is the campaign of its results, and no other's are taken."""

    id: str
    commits: dict[Side, str]
    # SHA-256 of the measured programs.
    programs: dict[Side, dict[str, str]]
    experiments: Sequence[str]
    pairs: int
    seed: int
    idle_s: float
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def run(self, measure: Measure, path: Path) -> None:
        """Make all pairs; write what there is after each, so that an interruption leaves it."""
        began = time.monotonic()
        for pair in range(self.pairs):
            for experiment in self.experiments:
                seed = self.seed + pair * RUNS[experiment]
                made = {side: measure(side, pair, experiment, seed) for side in order(pair)}
                self._add(self._records(made["base"]), self._records(made["head"]))
            self.save(path)
            left_s = (time.monotonic() - began) / (pair + 1) * (self.pairs - pair - 1)
            say(f"{pair + 1} of {self.pairs} pairs; some {left_s / 60:.0f} min left")

    def _records(self, path: Path) -> dict[tuple[str, str], Record]:
        result, _ = load(path)
        if result.campaign != self.id:
            raise CampaignError(f"{path} is of campaign {result.campaign}, not {self.id}")
        return {(one.id, one.subject): one for one in result.records if one.id in LIMITS}

    def _add(
        self, base: dict[tuple[str, str], Record], head: dict[tuple[str, str], Record]
    ) -> None:
        if not base or base.keys() != head.keys():
            raise CampaignError(f"the sides have different figures, {[*base]} and {[*head]}")
        for key, record in base.items():
            row = self.rows.setdefault(key, Row(*key, limit=LIMITS[record.id]))
            row.base.append(record.values)
            row.head.append(head[key].values)

    def save(self, path: Path) -> None:
        """Write it with all runs: `base[n]` and `head[n]` of a row are pair n."""
        document = dataclasses.asdict(self) | {
            "machine": machine(),
            "first of each pair": [order(pair)[0] for pair in range(self.pairs)],
            "rows": [
                {
                    **dataclasses.asdict(row),
                    "unit": FIGURES[row.figure].unit,
                    "verdict": _plain(row.verdict()),
                }
                for row in self.rows.values()
            ],
        }
        write_whole(path, json.dumps(document, indent=1) + "\n")

    def lines(self) -> list[str]:
        """Return a line for each row: verdict, ratio, and what was measured."""
        return [_line(row, self.commits["base"]) for row in self.rows.values()]

    def met(self) -> bool:
        """Tell whether all rows meet their limits."""
        verdicts = [row.verdict() for row in self.rows.values()]
        return all(verdict is not None and verdict.met for verdict in verdicts)


def _plain(verdict: Verdict | None) -> dict[str, object] | None:
    """Return a verdict for JSON, which has no infinity."""
    if verdict is None:
        return None
    values = dataclasses.asdict(verdict)
    return {name: None if value == math.inf else value for name, value in values.items()}


def _line(row: Row, base: str) -> str:
    figure, verdict = FIGURES[row.figure], row.verdict()
    what = f"{figure.title}, {figure.unit} (`{row.figure}`, {row.subject})"
    if verdict is None:
        return f"MISSED  nothing was moved: {what}"
    doubt = "" if verdict.certain else "; not certain, for the interval has the limit in it"
    return (
        f"{'met   ' if verdict.met else 'MISSED'}  {verdict.median:.4f} of {base[:7]}'s, with "
        f"{verdict.confidence:.0%} confidence {verdict.low:.4f} to {verdict.high:.4f}, "
        f"at most {row.limit:g}{doubt}: {what}"
    )


def compare(
    revision: str,
    experiments: Sequence[str],
    pairs: int,
    *,
    seed: int,
    idle_s: float,
    results: Path,
) -> bool:
    """Compare the present commit with another; return whether every limit is met.

    `results` gets a folder with all runs, and `comparison.json`. Raises `CampaignError` for a tree
    with changes, an unknown revision, programs that cannot be built, and runs that fail.
    """
    head = clean_commit()
    base = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not (head and base):
        raise CampaignError(f"there is no commit {revision!r}")
    commits: dict[Side, str] = {"base": base, "head": head}
    kept = {side: programs_of(commit) for side, commit in commits.items()}
    name = f"{now()[:19].replace(':', '')}-{base[:7]}-{head[:7]}"
    folder = results / name
    folder.mkdir(parents=True)
    programs = {side: folder / f"programs-{side}" for side in _SIDES}
    for side, own in programs.items():
        own.mkdir()
        (own / "underpass").symlink_to(kept[side] / "underpass")
        # The emulator is the instrument: both are measured with the same one.
        (own / "satlink").symlink_to(kept["head"] / "satlink")
    comparison = Comparison(
        id=name,
        commits=commits,
        programs={
            side: {one: sha256(own / one) for one in _PROGRAMS} for side, own in programs.items()
        },
        experiments=experiments,
        pairs=pairs,
        seed=seed,
        idle_s=idle_s,
    )

    def measure(side: Side, pair: int, experiment: str, seed: int) -> Path:
        if clean_commit() != head:
            raise CampaignError(f"the tree is no longer that of {head}")
        into = folder / f"{pair + 1:02}-{side}"
        options = [
            *("--subjects", OURS, "--runs", str(RUNS[experiment]), "--idle-s", str(idle_s)),
            *("--seed", str(seed), "--into", str(into), "--campaign", name),
        ]
        log = folder / f"{into.name}-{experiment}.log"
        child = started(experiment, options, log, programs[side])
        try:
            status = child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        if status != 0:
            raise CampaignError(f"{experiment} has failed with the programs of {side}: see {log}")
        return into / f"{experiment}.json"

    path = folder / "comparison.json"
    say(f"{base[:7]} and {head[:7]}: {pairs} pairs of {', '.join(experiments)}")
    comparison.run(measure, path)
    print("\n".join(comparison.lines()))
    say(f"written: {path}")
    return comparison.met()


def programs_of(commit: str) -> Path:
    """Return the folder of a commit's programs, built now or for an earlier comparison.

    Each commit is built in the same place, so that the programs differ in nothing else.
    """
    compiler = subprocess.run(["rustc", "-vV"], capture_output=True, check=True, cwd=_ROOT).stdout
    flags = os.environ.get("RUSTFLAGS", "").encode()
    kept = _BUILT / "programs" / f"{commit}-{hashlib.sha256(compiler + flags).hexdigest()[:8]}"
    if kept.exists():
        return kept
    say(f"building the programs of {commit[:7]} (first time: some minutes)")
    tree = _BUILT / "tree"
    if (tree / ".git").exists():
        _do("git", "checkout", "--quiet", "--force", "--detach", commit, cwd=tree)
    else:
        _do("git", "worktree", "prune", cwd=_ROOT)
        _do("git", "worktree", "add", "--quiet", "--detach", str(tree), commit, cwd=_ROOT)
    packages = [option for name in _PROGRAMS for option in ("--package", name)]
    options = ("--locked", "--release", "--target-dir", str(_BUILT / "build"), *packages)
    _do("cargo", "build", *options, cwd=tree)
    unfinished = _BUILT / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in _PROGRAMS:
        shutil.copy2(_BUILT / "build" / "release" / name, unfinished / name)
    kept.parent.mkdir(exist_ok=True)
    return unfinished.rename(kept)


def _do(*command: str, cwd: Path) -> None:
    if subprocess.run(command, cwd=cwd, check=False).returncode != 0:
        raise CampaignError(f"this has failed: {' '.join(command)}")
