"""Blockages predicted along synthetic drives, and along the recorded one if present."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dama.prediction import Fix, ObstructionMap
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.drives import field
from tests.drives.evaluation import Entry, Score, score
from tests.drives.synthetic import drives, entries_of, island_map

_DRIVES = 100


def run(settings: Settings) -> Result:
    """Predict along every drive, and compare with the blockages that came."""
    result = Result("prediction")
    result.told["underpass"] = "the map and each fix as it comes"
    island = island_map()
    made = [
        (drive.fixes, entries_of(drive, island))
        for drive in drives(settings.runs or _DRIVES, settings.seed)
    ]
    _measure(result, "synthetic", island, made)
    if result.left_out(field.missing_drive()):
        return result
    recorded = field.recorded()
    result.notes["the recorded drive"] = (
        "its obstruction lines are drawn from its own fixes, so it checks timing only; the "
        "receiver reckoned each tunnel's first 14 s dead, and the last such fix counts as the entry"
    )
    known = ObstructionMap(recorded.obstructions)
    _measure(result, "recorded", known, [(recorded.fixes, recorded.entries)])
    return result


def _measure(
    result: Result,
    name: str,
    obstructions: ObstructionMap,
    made: Iterable[tuple[Sequence[Fix], Sequence[Entry]]],
) -> None:
    total = Score()
    fixes = 0
    began = time.process_time()
    for track, entries in made:
        total.add(score(obstructions, track, entries))
        fixes += len(track)
    taken_us = 1e6 * (time.process_time() - began) / fixes
    judged = len(total.errors_s) + len(total.unseen)
    for part, values in (
        ("error", total.errors_s),
        ("missed", [float(len(total.missed))]),
        ("unseen", [100.0 * len(total.unseen) / judged]),
        ("false", [total.false_percent]),
        ("withdrawn", [total.withdrawn_percent]),
        ("cost", [taken_us]),
    ):
        made_record = record(f"prediction.{name}.{part}", "underpass", values)
        result.records.append(made_record)
        say(f"{made_record.id}: {made_record.median:.3g} {made_record.unit}")
    result.notes[
        f"{name}: entries, predictions, begun within 30 s of an entry, open at the end"
    ] = [
        judged,
        total.predicted,
        total.too_early,
        total.undecided,
    ]
