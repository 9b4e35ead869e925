"""A trace: what the links of a hop are over time, and how much they carry."""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Step:
    """A link from a time on: s, bit/s of IP, one-way ms, probability."""

    at_s: float
    rate_bps: int
    delay_ms: float
    loss: float = 0.0

    def document(self) -> dict[str, object]:
        """Return it as satlink's trace files have it."""
        model = {"model": "independent", "probability": self.loss}
        return {
            "at_s": self.at_s,
            "rate_bps": self.rate_bps,
            "delay_ms": self.delay_ms,
            "loss": model if self.loss else {"model": "none"},
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Step:
        """Read it back."""
        loss = document["loss"].get("probability", 0.0)
        return cls(document["at_s"], document["rate_bps"], document["delay_ms"], loss)


@dataclass(frozen=True)
class Trace:
    """Both directions of a hop over time; the first steps are at 0, the last ones last."""

    name: str
    source: str
    duration_s: float
    forward: Sequence[Step]
    return_: Sequence[Step]
    # Beginning and duration, s.
    blockages: Sequence[tuple[float, float]] = ()

    def document(self) -> dict[str, object]:
        """Return it as satlink's trace files have it."""
        return {
            "name": self.name,
            "source": self.source,
            "duration_s": self.duration_s,
            "forward": [step.document() for step in self.forward],
            "return": [step.document() for step in self.return_],
            "blockages": [
                {"start_s": start, "duration_s": length} for start, length in self.blockages
            ],
        }

    def save(self, folder: Path = FILES) -> Path:
        """Write its file, a line per step."""
        path = folder / f"{self.name}.json"
        lines = []
        for key, value in self.document().items():
            if isinstance(value, list):
                entries = ",\n  ".join(json.dumps(entry) for entry in value)
                lines.append(f'"{key}": [\n  {entries}\n ]' if value else f'"{key}": []')
            else:
                lines.append(f'"{key}": {json.dumps(value)}')
        path.write_text("{\n " + ",\n ".join(lines) + "\n}\n")
        return path

    @classmethod
    def load(cls, name: str) -> Trace:
        """Read a file that `save` wrote."""
        document = json.loads((FILES / f"{name}.json").read_text())
        return cls(
            document["name"],
            document["source"],
            document["duration_s"],
            [Step.of(step) for step in document["forward"]],
            [Step.of(step) for step in document["return"]],
            [(one["start_s"], one["duration_s"]) for one in document["blockages"]],
        )

    def steps(self, direction: str) -> Sequence[Step]:
        """Return the steps of `forward` or `return`."""
        return self.forward if direction == "forward" else self.return_

    def at(self, direction: str, time_s: float) -> Step:
        """Return the step in force."""
        steps = self.steps(direction)
        place = bisect.bisect_right(steps, time_s, key=lambda step: step.at_s)
        return steps[max(0, place - 1)]

    def rtt_s(self, time_s: float) -> float:
        """Return the round trip of what is sent then, without any queue."""
        return (self.at("forward", time_s).delay_ms + self.at("return", time_s).delay_ms) / 1000

    def blocked(self, time_s: float) -> bool:
        """Tell whether the terminal has no line of sight."""
        return any(start <= time_s < start + length for start, length in self.blockages)

    def carried_bits(self, direction: str, begin_s: float, end_s: float) -> float:
        """Return the bits of IP that arrive of a link in full use, losses and blockages left out.

        Of these, a payload has what its headers leave.
        """
        edges = {begin_s, end_s, *(step.at_s for step in self.steps(direction))}
        for start, length in self.blockages:
            edges |= {start, start + length}
        inside = sorted(edge for edge in edges if begin_s <= edge <= end_s)
        bits = 0.0
        for start, end in itertools.pairwise(inside):
            if not self.blocked(start):
                step = self.at(direction, start)
                bits += step.rate_bps * (1 - step.loss) * (end - start)
        return bits
