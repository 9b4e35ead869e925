"""Records: one per figure and subject, kept as JSON, one file per experiment."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import FIGURES

_SYSCTL = Path("/proc/sys/net")
RESULTS = Path(__file__).parent / "results"
# The ending of the file name of an experiment's samples.
SAMPLES = ".samples.json"


@dataclass(frozen=True)
class Record:
    """A figure of one subject; `values` are the runs in their order."""

    id: str
    subject: str
    unit: str
    n: int
    median: float
    p90: float
    target: float | None
    met: bool | None
    target_p90: float | None = None
    values: list[float] = field(default_factory=list)
    # Runs that were ended early. Their times count up to that end, which flatters them; goodputs
    # use the bytes until then.
    censored: int = 0
    censored_bytes: list[int] = field(default_factory=list)


def record(
    figure_id: str,
    subject: str,
    values: Sequence[float],
    *,
    censored_bytes: Sequence[int] = (),
) -> Record:
    """Make a figure's record from the values of its runs."""
    figure = FIGURES[figure_id]
    median = quantile(values, 0.5)
    p90 = quantile(values, 0.1 if figure.more_is_better else 0.9)
    return Record(
        id=figure_id,
        subject=subject,
        unit=figure.unit,
        n=len(values),
        median=median,
        p90=p90,
        target=figure.target,
        met=figure.meets(median, p90, values),
        target_p90=figure.target_p90,
        values=[round(value, 6) for value in values],
        censored=len(censored_bytes),
        censored_bytes=list(censored_bytes),
    )


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which `part` of the values lie, interpolated between neighbours."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def part_of(value: float, reference: float) -> float:
    """Return `value / reference`, or 0 if that is 0: what moved nothing has failed, and counts."""
    return value / reference if reference else 0.0


@dataclass
class Result:
    """One experiment's result: records, curves for its plots, and how it was run."""

    experiment: str
    records: list[Record] = field(default_factory=list)
    # By plot, then by line: pairs of x and y.
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    notes: dict[str, object] = field(default_factory=dict)
    # By subject: what it was told of the hop, and whether it started warm or cold.
    told: dict[str, str] = field(default_factory=dict)
    # Its campaign, None for a run by itself.
    campaign: str | None = None
    # The total duration; None if it was not noted.
    took_s: float | None = None
    # The samples from which a record's values were computed, by series and run, unless the values
    # are the samples. Saved in a separate file.
    samples: dict[str, list[list[float]]] = field(default_factory=dict)

    def left_out(self, reason: str | None) -> bool:
        """Note why this machine cannot run the experiment; return whether there is a reason."""
        if reason:
            self.notes["left out"] = reason
        return bool(reason)

    def save(self, folder: Path) -> Path:
        """Write it to `<experiment>.json`, and its samples to `<experiment>.samples.json`.

        The former is complete or absent, whenever the process is killed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        document = dataclasses.asdict(self)
        samples = {
            name: [[round(value, 6) for value in run] for run in runs]
            for name, runs in document.pop("samples").items()
        }
        if samples:
            of_samples = {"campaign": self.campaign, "samples": samples}
            (folder / f"{self.experiment}{SAMPLES}").write_text(json.dumps(of_samples) + "\n")
        path = folder / f"{self.experiment}.json"
        write_whole(path, json.dumps({"machine": machine(), **document}, indent=1) + "\n")
        return path


def load(path: Path) -> tuple[Result, dict[str, Any]]:
    """Read a saved result without its samples, and the machine that measured it."""
    document = json.loads(path.read_text())
    where: dict[str, Any] = document.pop("machine")
    document["records"] = [Record(**entry) for entry in document["records"]]
    return Result(**document), where


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: it keeps its old content until the new one is complete."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)


def machine() -> dict[str, object]:
    """Describe this machine as far as it affects figures."""
    return {
        "kernel": platform.release(),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_kib": int(_first("/proc/meminfo", "MemTotal").split()[0]),
        "default_congestion_control": (_SYSCTL / "ipv4/tcp_congestion_control").read_text().strip(),
        "rmem_max": int((_SYSCTL / "core/rmem_max").read_text()),
        # Without a length, it grows while a campaign goes on, as soon as the repository has more.
        "commit": git("rev-parse", "--short=12", "HEAD"),
    }


def git(*arguments: str) -> str:
    """Return git's output in this repository; empty outside of one."""
    done = subprocess.run(
        ["git", "-C", str(RESULTS.parent), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _first(path: str, name: str) -> str:
    """Return a name's first value in a file of `name : value` lines; "" if there is none."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
