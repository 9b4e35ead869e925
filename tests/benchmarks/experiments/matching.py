"""Which road a vehicle is on: the predictor's matcher beside Valhalla's Meili, on the same drives.

The predictor takes each fix as it comes. Meili is asked twice: online, for each fix with the minute
before it; and in hindsight, with the whole drive, which no predictor knows. Both get the same
fixes, without their accuracy; the predictor also gets speed and heading, which Meili cannot use.
"""

from __future__ import annotations

from tests.benchmarks import meili
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.drives import field
from tests.drives.extract import read_extract
from tests.drives.kinds import KINDS, drives_over
from tests.drives.matching import Matched, judge_all, matches_of_predictor

_DRIVES = 60
# On these drives the predictor's map lacks a road that Meili's has.
_LACKING = "unknown road"


def run(settings: Settings) -> Result:
    """Match drives over each extract with each matcher, and compare with the true roads."""
    result = Result("matching")
    result.told["underpass"] = "the map, and each fix as it comes"
    result.told["meili"] = "the map, and the fixes of the last minute, or of the whole drive"
    if result.left_out(field.missing(*field.EXTRACTS.values())):
        return result
    absent = meili.missing()
    if absent:
        result.notes["meili"] = f"left out: {absent}"
    kinds = [kind for kind in KINDS if kind != _LACKING]
    for name, file in field.EXTRACTS.items():
        path = field.FIELD / file
        extract = read_extract(path)
        made = list(drives_over(extract, settings.runs or _DRIVES, settings.seed, kinds))
        fixes = sum(len(one.drive.fixes) for one in made)
        own = [matches_of_predictor(one) for one in made]
        matched = judge_all(extract, zip(made, (matches for matches, _ in own), strict=True))
        _record(result, f"matching.{name}", "underpass", matched, sum(s for _, s in own) / fixes)
        result.notes[f"{name}: fixes, of these on the map, junctions"] = [
            fixes,
            matched.fixes,
            matched.junctions,
        ]
        if absent:
            continue
        found = list(meili.match(extract, path, made))
        online = judge_all(extract, zip(made, (one.online for one in found), strict=True))
        whole = judge_all(extract, zip(made, (one.whole for one in found), strict=True))
        online_s = sum(one.online_s for one in found) / fixes
        whole_s = sum(one.whole_s for one in found) / fixes
        _record(result, f"matching.{name}", "meili", online, online_s)
        _record(result, f"matching.{name}", "meili in hindsight", whole, whole_s)
    return result


def _record(result: Result, name: str, subject: str, matched: Matched, fix_s: float) -> None:
    for part, value in (
        ("fixes", matched.right_percent),
        ("junctions", matched.junctions_percent),
        ("cost", 1e6 * fix_s),
    ):
        made = record(f"{name}.{part}", subject, [value])
        result.records.append(made)
        say(f"{made.id}, {subject}: {made.median:.4g} {made.unit}")
