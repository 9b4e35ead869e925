"""Drives through a street canyon: blockages foreseen by the sky above a map, against sensed ones.

In virtual time, as for road tunnels (`road_ahead_lending.py`): control's own predictions, decisions
when to plan, planner and ledger. The same drives are planned by the shadows that control computes
from the map's houses, without any, so that only the hub's sensing is left, and by known times.
"""

from __future__ import annotations

from collections.abc import Sequence

from dama.prediction import ObstructionMap
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, part_of, record
from tests.drives.canyon import NOISE_M, canyon, drive_through
from tests.drives.lending import Knows, Lent, lend

_DRIVES = 20


def run(settings: Settings) -> Result:
    """Drive once through each of several canyons."""
    result = Result("sky-in-the-loop")
    result.told["underpass"] = "the map, each fix as it comes, and what the hub senses"
    foreseen: list[Lent] = []
    sensed: list[Lent] = []
    times: list[Lent] = []
    shown = []
    for seed in range(settings.seed, settings.seed + (settings.runs or _DRIVES)):
        street = canyon(seed)
        drive = drive_through(street, seed)
        known = ObstructionMap(street.obstructions)
        foreseen.append(lend(known, drive, Knows.PREDICTIONS))
        sensed.append(lend(ObstructionMap([]), drive, Knows.PREDICTIONS))
        times.append(lend(known, drive, Knows.TIMES))
        lengths_s = [(one.exit_ms - one.entry_ms) / 1000.0 for one in drive.covered]
        vehicle = (one[-1].vehicle_bits for one in (foreseen, sensed, times))
        shown.append(
            [
                len(drive.fixes),
                len(lengths_s),
                round(sum(lengths_s), 1),
                *(round(bits / 1e6, 1) for bits in vehicle),
            ]
        )
    for part, values in measured(foreseen, sensed, times).items():
        made = record(f"sky-in-the-loop.{part}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.4g} {made.unit}")
    result.notes["each drive: s, blockages, s blocked, Mbit foreseen, sensed, by known times"] = (
        shown
    )
    result.notes["measured"] = (
        "in virtual time, on invented canyons: one satellite, houses in the south, their heights "
        f"in the map as wrong as control expects; {NOISE_M:g} m of position noise in each axis, "
        "no loss of fix; one vehicle and three terminals in the open share 8 Mbit/s, all greedy, "
        "until four minutes after the drive"
    )
    return result


def measured(
    foreseen: Sequence[Lent], sensed: Sequence[Lent], times: Sequence[Lent]
) -> dict[str, list[float]]:
    """Return the values of each figure; a gain is 0 where known times gain nothing."""
    found = {
        "goodput-each": [
            100.0 * part_of(one.vehicle_bits, other.vehicle_bits)
            for one, other in zip(foreseen, sensed, strict=True)
        ],
        "debts": [float(one.debt_bits) for one in foreseen],
        "plans": [float(one.plans) for one in foreseen],
    }
    for part, bits in (("gain", _vehicle_bits), ("gain-of-all", _bits)):
        by_sight, by_sense, by_times = (
            sum(map(bits, drives)) for drives in (foreseen, sensed, times)
        )
        most = by_times - by_sense
        found[part] = [100.0 * (by_sight - by_sense) / most if most > 0 else 0.0]
    return found


def _vehicle_bits(of: Lent) -> int:
    return of.vehicle_bits


def _bits(of: Lent) -> int:
    return of.vehicle_bits + of.others_bits
