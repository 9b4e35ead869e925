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
    # Runs that were ended early. Times count as the end's, which flatters them; goodputs as the
    # bytes until then allow.
    censored: int = 0
    censored_bytes: list[int] = field(default_factory=list)


def record(
    figure_id: str,
    subject: str,
    values: Sequence[float],
    *,
    censored_bytes: Sequence[int] = (),
) -> Record:
    """Make the record of a figure from the values of its runs."""
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
        met=figure.meets(median, p90),
        target_p90=figure.target_p90,
        values=[round(value, 6) for value in values],
        censored=len(censored_bytes),
        censored_bytes=list(censored_bytes),
    )


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which `part` of the values lie, interpolated between two of them."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


@dataclass
class Result:
    """What one experiment found: records, curves for its plots, and how it was run."""

    experiment: str
    records: list[Record] = field(default_factory=list)
    # By plot, then by line: pairs of x and y.
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    notes: dict[str, object] = field(default_factory=dict)

    def save(self, folder: Path = RESULTS) -> Path:
        """Write it to `<experiment>.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.experiment}.json"
        text = json.dumps({"machine": machine(), **dataclasses.asdict(self)}, indent=1)
        path.write_text(text + "\n")
        return path


def load(path: Path) -> tuple[Result, dict[str, Any]]:
    """Read a saved result, and the machine it was measured on."""
    document = json.loads(path.read_text())
    where: dict[str, Any] = document.pop("machine")
    document["records"] = [Record(**entry) for entry in document["records"]]
    return Result(**document), where


def machine() -> dict[str, object]:
    """Describe this machine, as far as figures depend on it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "default_congestion_control": (_SYSCTL / "ipv4/tcp_congestion_control").read_text().strip(),
        "rmem_max": int((_SYSCTL / "core/rmem_max").read_text()),
        "commit": commit,
    }
