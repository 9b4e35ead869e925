"""Blockages predicted on real maps: by the map alone, by a known route, and on later drives."""

from __future__ import annotations

import time
from dataclasses import replace

from dama.prediction import ObstructionMap
from dama.prediction.habits import TurnCounts
from dama.prediction.paces import RoadPaces
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.drives import field
from tests.drives.drive import START_MS
from tests.drives.extract import Extract, read_extract
from tests.drives.kinds import FREE, UNUSUAL, drives_over
from tests.drives.road_ahead import CERTAIN, TOLD, Outcome, habits_of, judge_all

_DRIVES = 200
_FLEET = 300
_FLEET_SEED = 100_000
# How often the same way was driven before.
_BEFORE = {"map": 0, "route": 0, "again": 1, "ten-passes": 10}


def run(settings: Settings) -> Result:
    """Predict along drives over each extract, and compare with the blockages that came."""
    result = Result("road-ahead")
    result.told["underpass"] = (
        "the map and each fix as it comes; the route, or one or ten drives before, where that is "
        "said"
    )
    if result.left_out(field.missing(*field.EXTRACTS.values())):
        return result
    for name, file in field.EXTRACTS.items():
        extract = read_extract(field.FIELD / file)
        made = list(drives_over(extract, settings.runs or _DRIVES, settings.seed))
        for way, before in _BEFORE.items():
            began = time.process_time()
            outcomes = judge_all(extract, made, with_route=way == "route", driven_before=before)
            taken_us = 1e6 * (time.process_time() - began)
            fixes = sum(len(drive.drive.fixes) for drive in made)
            _measure(result, f"road-ahead.{name}.{way}", outcomes[""], taken_us / fixes)
            for kind, outcome in sorted(outcomes.items()):
                if kind:
                    result.notes[f"{name}, {way}, {kind}: {_SUMMARY}"] = _summary(outcome)
            result.notes[f"{name}, {way}: {_RELIABILITY}"] = _reliability(outcomes[""])
        # Only drives that are not steered through a portal show how often predictions come true.
        free = list(drives_over(extract, settings.runs or _DRIVES, settings.seed, FREE))
        _measure_reliability(result, name, "free", judge_all(extract, free)[""])
        turned = _turned(extract, settings)
        many = [replace(one, known=turned) for one in free]
        _measure_reliability(result, name, "fleet", judge_all(extract, many)[""])
        count = settings.runs or _DRIVES
        rush = list(drives_over(extract, count, settings.seed, FREE, in_rush_hour=True))
        _measure_times(result, name, "rush", judge_all(extract, rush)[""])
        paced = _paced(extract, settings)
        learned = [replace(one, known=paced) for one in rush]
        _measure_times(result, name, "rush-learned", judge_all(extract, learned)[""])
        for kind in UNUSUAL:
            few = drives_over(extract, max(count // len(UNUSUAL), 1), settings.seed, (kind,))
            outcome = judge_all(extract, few)[""]
            _measure_unusual(result, f"road-ahead.{name}.{kind.replace(' ', '-')}", outcome)
            result.notes[f"{name}, only {kind}: {_SUMMARY}"] = _summary(outcome)
    result.notes["fleet"] = (
        f"with the turns of {_FLEET} other vehicles, each of which was driven freely once"
    )
    return result


def _turned(extract: Extract, settings: Settings) -> ObstructionMap:
    """Return the map with turns learned from a fleet that has driven on it."""
    counts = TurnCounts()
    for made in drives_over(extract, _FLEET, settings.seed + _FLEET_SEED, FREE):
        counts.add(habits_of(extract.known, [made.drive]), 0, extract.known.turn)
    return extract.known.turned(counts)


def _paced(extract: Extract, settings: Settings) -> ObstructionMap:
    """Return the map with paces learned from a fleet that has driven on it in rush hour."""
    paces = RoadPaces(START_MS)
    first = settings.seed + _FLEET_SEED
    for made in drives_over(extract, _FLEET, first, FREE, in_rush_hour=True):
        paces.add(habits_of(extract.known, [made.drive]))
    return extract.known.paced(paces)


def _measure_times(result: Result, name: str, how: str, outcome: Outcome) -> None:
    _record(
        result,
        f"road-ahead.{name}.{how}",
        {
            "error": outcome.free_s,
            "exit": outcome.exits_s,
            "entry-within": [outcome.within_percent(outcome.entered)],
        },
    )


def _measure_unusual(result: Result, name: str, outcome: Outcome) -> None:
    _record(
        result,
        name,
        {
            "error": outcome.free_s,
            "exit": outcome.exits_s,
            "untold": [_untold_percent(outcome)] if outcome.knowable else [],
            "false-certain": [outcome.false_percent(CERTAIN)],
            "false": [outcome.false_percent(TOLD)],
        },
    )


def _untold_percent(outcome: Outcome) -> float:
    return 100.0 * outcome.knowable_untold / outcome.knowable if outcome.knowable else 0.0


def _measure_reliability(result: Result, name: str, how: str, free: Outcome) -> None:
    _record(
        result,
        f"road-ahead.{name}.{how}",
        {
            "false-certain": [free.false_percent(CERTAIN)],
            "false": [free.false_percent(TOLD)],
            "unreliable": [free.unreliability()],
            "unreliable-by-chance": [free.unreliability_by_chance()],
            "miscalibrated": [free.miscalibration()],
        },
    )
    result.notes[f"{name}, {how}: {_RELIABILITY}"] = _reliability(free)


_RELIABILITY = "told, came, part of the drivers who come, how many; by tenths of confidence"


def _reliability(outcome: Outcome) -> list[list[float]]:
    return [[round(value, 3) for value in tenth] for tenth in outcome.reliability()]


_SUMMARY = "drives, entries, knowable, untold 10 s before, of these knowable, false in %"


def _summary(outcome: Outcome) -> list[float]:
    return [
        outcome.drives,
        outcome.entries,
        outcome.knowable,
        outcome.untold,
        outcome.knowable_untold,
        round(outcome.false_percent(TOLD), 1),
    ]


def _measure(result: Result, name: str, outcome: Outcome, cost_us: float) -> None:
    _record(
        result,
        name,
        {
            "error": outcome.free_s,
            "error-held-up": outcome.held_up_s,
            "exit": outcome.exits_s,
            "entry-within": [outcome.within_percent(outcome.entered)],
            "exit-within": [outcome.within_percent(outcome.left)],
            "untold": [_untold_percent(outcome)],
            "false-certain": [outcome.false_percent(CERTAIN)],
            "false": [outcome.false_percent(TOLD)],
            "unreliable": [outcome.unreliability()],
            "cost": [cost_us],
        },
    )


def _record(result: Result, name: str, measured: dict[str, list[float]]) -> None:
    for part, values in measured.items():
        if values:
            made = record(f"{name}.{part}", "underpass", values)
            result.records.append(made)
            say(f"{made.id}: {made.median:.3g} {made.unit}")
