"""Lending before road tunnels of real maps: by predictions, against a plan with the true times."""

from __future__ import annotations

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.drives import field
from tests.drives.extract import read_extract
from tests.drives.kinds import drives_over
from tests.drives.lending import Knows, Lent, lend

_DRIVES = 40


def run(settings: Settings) -> Result:
    """Lend to a vehicle along drives over each extract, and compare everyone's data."""
    result = Result("road-ahead-lending")
    result.told["underpass"] = "the map, each fix as it comes, and what the hub senses"
    if result.left_out(field.missing(*field.EXTRACTS.values())):
        return result
    for name, file in field.EXTRACTS.items():
        extract = read_extract(field.FIELD / file)
        drives = list(drives_over(extract, settings.runs or _DRIVES, settings.seed))
        lent = {knows: [lend(made.known, made.drive, knows) for made in drives] for knows in Knows}
        _measure(result, f"road-ahead.{name}.lending", lent)
        result.notes[f"{name}: kind, % of the vehicle, % of the others, plans"] = [
            [made.kind, *_shown(one, known)]
            for made, one, known in zip(
                drives, lent[Knows.PREDICTIONS], lent[Knows.TIMES], strict=True
            )
        ]
    return result


def _measure(result: Result, name: str, lent: dict[Knows, list[Lent]]) -> None:
    predicted, known = lent[Knows.PREDICTIONS], lent[Knows.TIMES]
    vehicle, by_times, without = (sum(one.vehicle_bits for one in lent[how]) for how in Knows)
    others, others_by_times = (
        sum(one.others_bits for one in every) for every in (predicted, known)
    )
    measured: dict[str, list[float]] = {
        "vehicle": [100.0 * vehicle / by_times],
        "vehicle-each": [_shown(*pair)[0] for pair in zip(predicted, known, strict=True)],
        "others": [100.0 * others / others_by_times],
        "debts": [one.debt_bits for one in predicted],
        "plans": [one.plans for one in predicted],
    }
    if by_times > without:
        measured["gain"] = [100.0 * (vehicle - without) / (by_times - without)]
    for part, values in measured.items():
        made = record(f"{name}.{part}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.4g} {made.unit}")


def _shown(one: Lent, known: Lent) -> tuple[float, float, int]:
    return (
        round(100.0 * one.vehicle_bits / known.vehicle_bits, 2),
        round(100.0 * one.others_bits / known.others_bits, 2),
        one.plans,
    )
