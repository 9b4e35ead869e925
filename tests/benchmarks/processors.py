"""How busy the machine's processors were, which shows other load beside an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_STAT = Path("/proc/stat")
# The first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_COUNTED = 8


class Processors:
    """The load of all processors from now on, whatever its origin."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._before = _times(stat)

    def told(self) -> str:
        """Return the part of the time since then that they were idle or stolen, in %, as text."""
        idle, stolen = self._parts()
        return f"idle {100 * idle:.0f} %, taken by other machines {100 * stolen:.0f} %"

    def idle(self) -> float:
        """Return the part of the time since then that they were idle, 0 to 1."""
        return self._parts()[0]

    def _parts(self) -> tuple[float, float]:
        passed = [now - then for now, then in zip(_times(self._stat), self._before, strict=True)]
        whole = max(1, sum(passed))
        return (passed[_IDLE] + passed[_IOWAIT]) / whole, passed[_STEAL] / whole


def _times(stat: Path) -> Sequence[int]:
    name, *times = stat.read_text().splitlines()[0].split()
    if name != "cpu":
        raise RuntimeError(f"{stat} does not begin with all processors")
    return [int(time) for time in times[:_COUNTED]]
