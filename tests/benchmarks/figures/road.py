"""The figures of prediction: the roads ahead and the sky above them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figures.figure import Figure


def _road_ahead() -> Iterator[Figure]:
    """Yield the quality of prediction on real maps: by map, by route, a second time, after ten."""
    for name in ("andorra", "krems", "moscow"):
        for way, how in (
            ("map", "by the map alone"),
            ("route", "with the route known"),
            ("again", "the second time on the same way"),
            ("ten-passes", "after ten drives on the same way"),
        ):
            which = f"roads of {name.capitalize()}, {how}"
            # A way that was driven before has the same targets as a known route.
            route = way != "map"
            # Each has a target for the median, and one for the 90th percentile.
            for part, title, unit, target, target_p90 in (
                (
                    "error",
                    "Entry time predicted 30 s ahead, not held up on the way",
                    "s",
                    1.0 if route else 1.5,
                    4.0 if route else 6.0,
                ),
                ("error-held-up", "The same, held up by a light or a jam", "s", None, None),
                ("exit", "Exit time predicted at the portal", "s", 3.0, 10.0),
                (
                    "entry-within",
                    "Entries within the told 80 % interval, 30 s ahead",
                    "%",
                    80.0,
                    None,
                ),
                (
                    "exit-within",
                    "Exits within the told 80 % interval, at the portal",
                    "%",
                    80.0,
                    None,
                ),
                (
                    "untold",
                    "Entries that a perfect matcher would know and that are not told 10 s before",
                    "%",
                    1.0 if route else 2.0,
                    None,
                ),
                (
                    "false-certain",
                    "Told at 0.9 or more 10 s before, and not come",
                    "%",
                    2.0 if route else 5.0,
                    None,
                ),
                ("false", "Told at 0.5 or more 10 s before, and not come", "%", None, None),
                (
                    "unreliable",
                    "Distance of the part that came from the confidence, mean over tenths",
                    "1",
                    0.05,
                    None,
                ),
                (
                    "cost",
                    "One fix in, blockages out, judging and the route's matching included",
                    "µs",
                    None,
                    None,
                ),
            ):
                yield Figure(
                    f"road-ahead.{name}.{way}.{part}",
                    f"{title}, {which}",
                    unit,
                    target=target,
                    target_p90=target_p90,
                    tolerance=_tolerance(part),
                    more_is_better=part.endswith("-within"),
                )
        for way, how in (
            ("free", "drives that nothing steers past a portal"),
            ("fleet", "the same, with the turns of 300 other vehicles"),
        ):
            for part, title, unit, target in (
                ("false-certain", "Told at 0.9 or more 10 s before, and not come", "%", 5.0),
                ("false", "Told at 0.5 or more 10 s before, and not come", "%", None),
                (
                    "unreliable",
                    "Distance of the part that came from the confidence, mean over tenths",
                    "1",
                    0.05,
                ),
                (
                    "unreliable-by-chance",
                    "The same, on average, of so many blockages that come as probably as was told",
                    "1",
                    None,
                ),
                (
                    "miscalibrated",
                    "Distance of the part of the drivers who come from the confidence, over tenths",
                    "1",
                    0.05,
                ),
            ):
                yield Figure(
                    f"road-ahead.{name}.{way}.{part}",
                    f"{title}, roads of {name.capitalize()}, {how}",
                    unit,
                    target=target,
                )
        yield from _rush_hour(name)
        yield from _unusual(name)


def _tolerance(part: str) -> float | None:
    # An interval that too many values fall into is as wrong as one that too few fall into.
    return 5.0 if part.endswith("-within") else None


def _rush_hour(name: str) -> Iterator[Figure]:
    """Yield the errors of predicted times on a map in rush hour, with and without learned paces."""
    for way, how in (
        ("rush", "in rush hour, by the map alone"),
        ("rush-learned", "in rush hour, with the paces of 300 other vehicles"),
    ):
        wanted = way == "rush-learned"
        for part, title, unit, target, target_p90 in (
            ("error", "Entry time predicted 30 s ahead, not held up on the way", "s", 1.5, 6.0),
            ("exit", "Exit time predicted at the portal", "s", 3.0, 10.0),
            ("entry-within", "Entries within the told 80 % interval, 30 s ahead", "%", 80.0, None),
        ):
            yield Figure(
                f"road-ahead.{name}.{way}.{part}",
                f"{title}, roads of {name.capitalize()}, {how}",
                unit,
                target=target if wanted else None,
                target_p90=target_p90 if wanted else None,
                tolerance=_tolerance(part),
                more_is_better=part.endswith("-within"),
            )


def _unusual(name: str) -> Iterator[Figure]:
    """Yield the quality of prediction on a map, by kinds of drives and receivers that are rare."""
    for kind, how in (
        ("car-park", "drives that leave the way to a portal and park"),
        ("ferry", "drives that cross by a ferry before they come to a portal"),
        ("freezes", "receivers that repeat their last place for a minute when they have lost it"),
        ("extrapolates", "receivers that go on for half a minute with the last speed and course"),
        ("returns-late", "receivers whose fix returns 15 to 60 s behind a portal"),
    ):
        # Nobody who parks comes to a portal.
        for part, title, unit in (
            ("error", "Entry time predicted 30 s ahead, not held up on the way", "s"),
            ("exit", "Exit time predicted at the portal", "s"),
            ("untold", "Entries that a perfect matcher would know, not told 10 s before", "%"),
            ("false-certain", "Told at 0.9 or more 10 s before, and not come", "%"),
            ("false", "Told at 0.5 or more 10 s before, and not come", "%"),
        ):
            if kind != "car-park" or part.startswith("false"):
                yield Figure(
                    f"road-ahead.{name}.{kind}.{part}",
                    f"{title}, roads of {name.capitalize()}, {how}",
                    unit,
                )


def _matching() -> Iterator[Figure]:
    """Yield how well vehicles are matched to roads, beside Meili, by map."""
    for name in ("andorra", "krems", "moscow"):
        for part, title, unit, more in (
            ("fixes", "Fixes matched to the road that was driven", "%", True),
            ("junctions", "Junctions behind which the match is right after 3 s", "%", True),
            ("cost", "Processor time of a fix", "µs", False),
        ):
            yield Figure(
                f"matching.{name}.{part}",
                f"{title}, roads of {name.capitalize()}",
                unit,
                more_is_better=more,
            )


def _road_ahead_lending() -> Iterator[Figure]:
    """Yield the results of lending by predictions, beside lending by known times, by map."""
    for name in ("andorra", "krems", "moscow"):
        for part, title, unit, target, more in (
            (
                "vehicle",
                "Bits of the vehicle, of those by known times, all drives",
                "%",
                97.0,
                True,
            ),
            ("vehicle-each", "The same, drive by drive", "%", None, True),
            ("others", "Bits of the others, of those by known times, all drives", "%", 99.0, True),
            (
                "gain",
                "What the vehicle gains by lending, of its gain by known times",
                "%",
                None,
                True,
            ),
            # Rounding may leave a bit.
            ("debts", "Owed four minutes after the drive", "bit", 1.0, False),
            ("plans", "Plans made in a drive", "1", None, False),
        ):
            yield Figure(
                f"road-ahead.{name}.lending.{part}",
                f"{title}, roads of {name.capitalize()}, lent for by predictions",
                unit,
                target=target,
                more_is_better=more,
            )


def _sky_in_the_loop() -> Iterator[Figure]:
    """Yield the results of foreseeing the short blockages of a street canyon."""
    canyon = "a drive through a street canyon, 3 m of position noise"
    for part, title, unit, target, more in (
        (
            "gain",
            f"What a vehicle gains by foreseen blockages over sensed ones on {canyon}, of its gain "
            "by known times, all drives",
            "%",
            50.0,
            True,
        ),
        ("gain-of-all", "The same, of the vehicle and the beam's others together", "%", None, True),
        (
            "goodput-each",
            f"Bits of the vehicle with foreseen blockages, of those with sensed ones, {canyon}; "
            "each",
            "%",
            100.0,
            True,
        ),
        # Rounding may leave a bit.
        ("debts", "The same: owed four minutes after the drive", "bit", 1.0, False),
        ("plans", "The same: plans made", "1", None, False),
    ):
        yield Figure(
            f"sky-in-the-loop.{part}",
            title,
            unit,
            target=target,
            more_is_better=more,
            in_each=part == "goodput-each",
        )


def _two_processes() -> Iterator[Figure]:
    """Yield what a second process of the control service brings to two beams."""
    machine = "senders and database on the same cores"
    for part, title, unit, target, more in (
        (
            "scale",
            "Vehicles served by two processes with a beam each, of those by one with both, by the "
            "processor time of the busiest",
            "1",
            1.8,
            True,
        ),
        ("cost.one", "Processor time of a fix, one process with two beams", "µs", None, False),
        ("cost.two", "The same, two processes with a beam each, together", "µs", None, False),
        (
            "most.one",
            f"Fixes predicted with where 3,000 a second are offered, one process, {machine}",
            "1/s",
            None,
            True,
        ),
        ("most.two", f"The same, two processes, {machine}", "1/s", None, True),
        ("most-scale", f"The same, of two processes relative to one, {machine}", "1", None, True),
    ):
        yield Figure(f"two-processes.{part}", title, unit, target=target, more_is_better=more)


def _closed_loop() -> Iterator[Figure]:
    """Yield the results of the recorded drive through the whole system."""
    drive = "ten minutes of the recorded drive with two road tunnels, from gpsd to the ledger"
    for part, title, unit, target, more in (
        ("vehicle", "Bits of the vehicle, of those by known times", "%", 97.0, True),
        ("others", "Bits of the others, of those by known times", "%", 99.0, True),
        ("foreseen", "Tunnels entered that were predicted 10 s before", "%", 100.0, True),
        ("debts", "Owed by all together, two minutes after the drive at most", "bit", 0.0, False),
    ):
        yield Figure(
            f"closed-loop.{part}",
            f"{title}, {drive}",
            unit,
            target=target,
            more_is_better=more,
            in_each=part in ("foreseen", "debts"),
        )


ROAD = [
    *(
        figure
        for drives, which in (
            ("synthetic", "100 synthetic drives with their map"),
            ("recorded", "the recorded drive, lines drawn from itself (timing only)"),
        )
        for figure in (
            Figure(
                f"prediction.{drives}.error",
                f"Entry time predicted 30 s ahead against the last fix before the loss, {which}",
                "s",
                target=2.0,
            ),
            Figure(
                f"prediction.{drives}.missed",
                "The same: entries not predicted 10 s ahead",
                "entries",
                target=0.0,
            ),
            Figure(
                f"prediction.{drives}.unseen",
                "The same: entries not yet predicted 30 s ahead",
                "%",
            ),
            Figure(
                f"prediction.{drives}.false",
                "The same: predictions held 10 s before their entry that no entry follows",
                "%",
                target=5.0,
            ),
            Figure(
                f"prediction.{drives}.withdrawn",
                "The same: predictions held 30 s before their entry and given up 10 s before",
                "%",
            ),
            Figure(
                f"prediction.{drives}.cost",
                "The same: one fix in, blockages out, one core",
                "µs",
            ),
        )
    ),
    *_matching(),
    *_road_ahead(),
    *_road_ahead_lending(),
    Figure(
        "sky.cost",
        "Shadows of 100,000 buildings on 10,000 km of road, both directions, one core",
        "s",
        target=60.0,
    ),
    Figure(
        "sky.precision",
        "Places told as blocked that are, by rays from 100,000 places, all heights known",
        "%",
        target=95.0,
        more_is_better=True,
    ),
    Figure(
        "sky.recall",
        "The same: blocked places that are told as such",
        "%",
        target=95.0,
        more_is_better=True,
    ),
    Figure(
        "sky.told-worst",
        "Half of inner Moscow's known heights hidden: probability told against part blocked, "
        "the tenth that is furthest off",
        "1",
        target=0.05,
    ),
    Figure("sky.told-mean", "The same, the mean of all tenths by metres", "1"),
    *_sky_in_the_loop(),
    *(
        Figure(
            f"moving-vehicles.{name}.{part}",
            f"{title}, map of {which}",
            unit,
            target=target,
            more_is_better=part in ("vehicles", "plans"),
        )
        for name, which in (("town", "a dense town"), ("country", "100,000 roads"))
        for part, title, unit, target in (
            (
                "processor",
                "Processors taken by the control service for 2,000 vehicles that move at 1 Hz",
                "1",
                1.0,
            ),
            (
                "vehicles",
                "Moving vehicles that one processor would serve",
                "1",
                2_000.0,
            ),
            (
                "delay",
                "From a fix to what is predicted by it, 99th percentile",
                "s",
                1.0,
            ),
            (
                "plan",
                "From a fix to the plan that is stored with what it predicts, 99th percentile",
                "s",
                None,
            ),
            ("plans", "Plans of the beam's forward link meanwhile", "1/min", None),
        )
    ),
    *_two_processes(),
    *_closed_loop(),
]
