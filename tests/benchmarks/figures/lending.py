"""The figures of a beam whose terminals borrow and lend."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figures.figure import Figure


def _allocation() -> Iterator[Figure]:
    """Yield the figures of the paper's experiment: each session's amount, and the fairness."""
    paper = {
        "clear": "the paper's: 543.2; 542.4 to 544.8",
        "blocked": "the paper's splitting PEP: 427.2; 575 to 578; Jain 0.962 / 0.976 / 0.987",
        "lent": "the paper's: 498.4; 543.2 to 544.8; Jain 0.99 / 0.997 / 0.999",
    }
    told = {
        "clear": "no blockage",
        "blocked": "A blocked for 60 s of 300, without lending",
        "lent": "A blocked for 60 s of 300, announced 120 s before, lent and repaid",
    }
    for direction, way in (("down", "downloads"), ("up", "uploads")):
        for condition, what in told.items():
            name = f"allocation-{direction}.{condition}"
            asked = direction == "down" and condition != "blocked"
            title = f"8 Mbit/s shared, {way}, {what}"
            known = paper[condition] if direction == "down" else ""
            for part, of in (("a", "A"), ("others", "the least of B, C, D")):
                target = {"clear-a": 555.0, "lent-a": 550.0}.get(f"{condition}-{part}", 555.0)
                yield Figure(
                    f"{name}.{part}",
                    f"{title}: sent in 300 s, {of}",
                    "Mbit",
                    target if asked else None,
                    more_is_better=True,
                    elsewhere=known,
                )
            for sessions in (2, 4, 8):
                yield Figure(
                    f"{name}.jain-{sessions}",
                    f"{title}: Jain's index of {sessions} sessions",
                    "1",
                    0.9999 if asked else None,
                    more_is_better=True,
                    elsewhere=known,
                )


LENDING = [*_allocation()]
