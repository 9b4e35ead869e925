"""The figures of a shared beam, of the control service that plans it, and of its console."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figures.figure import Figure


def _shared_fade() -> Iterator[Figure]:
    """Yield the figures of eight terminals, two of which fade."""
    for way, transfers in (("down", "downloads"), ("up", "uploads")):
        yield Figure(
            f"shared-fade.{way}.others",
            "Eight terminals share 8 Mbit/s by the plan, two fade to a quarter of their share, "
            f"{transfers}: goodput of the least of the other six, of its own before",
            "%",
            target=97.0,
            more_is_better=True,
        )
        yield Figure(
            f"shared-fade.{way}.faded",
            "The same: goodput of the two, of what headers leave of their links",
            "%",
            more_is_better=True,
        )
        yield Figure(
            f"shared-fade.{way}.planned",
            "The same: from the fade until the plan has it for both",
            "s",
        )


BEAM = [
    *_shared_fade(),
    Figure(
        "planner.1000",
        "Planning a beam of 1,000 terminals with 100 overlapping blockages, one core",
        "ms",
        target=200.0,
    ),
    Figure("planner.10000", "The same blockages among 10,000 terminals", "ms"),
    Figure("planner.ratio", "The second against the first", "ratio", target=2.0),
    Figure(
        "console.frames",
        "Frames of the console with 10,000 vehicles moving at 1 Hz, of those with a blank map",
        "%",
        target=90.0,
        more_is_better=True,
    ),
    Figure(
        "console.heap",
        "JavaScript heap of that console after two minutes",
        "MB",
    ),
    Figure(
        "console.to-screen",
        "From the service's answer to a fix until it is on that console's map, p99",
        "s",
        target=1.0,
    ),
    Figure(
        "console.hour.heap",
        "The most JavaScript heap in the last ten minutes of an hour with those vehicles",
        "MB",
        target=300.0,
    ),
    Figure(
        "console.hop.round-trips",
        "The console's first load over the hop, TLS: until it can be signed in to",
        "RTT",
        target=4.0,
    ),
    Figure("console.hop.bytes", "The same: what came until then, compressed", "kB", target=200.0),
    Figure(
        "console.hop.table",
        "The same, with a token in the address: until the table shows the links of 1,000 terminals",
        "RTT",
    ),
    Figure("console.hop.map", "The same: until the map shows their vehicles", "RTT"),
    Figure("console.hop.fleet-bytes", "The same: what came until both, compressed", "kB"),
    Figure(
        "console.hundred.reports",
        "A hundred consoles open beside 1,000 reporting terminals: how much longer reports take",
        "%",
        target=5.0,
    ),
    Figure(
        "console.hundred.plans",
        "The same: how much longer it takes from an announced blockage to the plan",
        "%",
        target=5.0,
    ),
    *(
        Figure(
            f"position-reports.{database}",
            "Position reports stored, batches of 100 over HTTP with a token, one process that "
            f"plans for 1,000 reporting terminals meanwhile, {name}",
            "1/s",
            target=target,
            more_is_better=True,
        )
        for database, name, target in (
            ("sqlite", "SQLite", 5_000.0),
            ("postgresql", "PostgreSQL", 10_000.0),
        )
    ),
    *(
        figure
        for database, name in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL"))
        for figure in (
            Figure(
                f"report-to-plan.hub.{database}",
                f"From a report's arrival at control to the plan in force at the hub, {name}",
                "ms",
                target=300.0,
            ),
            Figure(
                f"report-to-plan.terminal.{database}",
                "The same at the terminal, one way delay of 250 ms included",
                "ms",
                target=550.0,
            ),
        )
    ),
    *(
        figure
        for what, away in (("service", "the control service"), ("database", "its PostgreSQL"))
        for figure in (
            Figure(
                f"control-loss.{what}.missing",
                f"60 s without {away}: position reports lost",
                "reports",
                target=0.0,
            ),
            Figure(
                f"control-loss.{what}.plans",
                "The same: links whose next plan did not come into force within 10 s",
                "links",
                target=0.0,
            ),
            Figure(
                f"control-loss.{what}.caught-up",
                "The same: until the newest positions are known again",
                "s",
            ),
            Figure(
                f"control-loss.{what}.goodput",
                "The same: goodput of these 60 s against those before",
                "%",
                target=99.0,
                more_is_better=True,
            ),
        )
    ),
    *(
        Figure(
            f"goodput-rtt.{part}.{rtt}",
            f"Goodput at 10 Mbit/s, satellite RTT {rtt} ms, {what}",
            "Mbit/s",
            more_is_better=True,
        )
        for part, what in (
            ("competition", "five flows of 25 ms share the bottleneck behind the hub"),
            ("loss", "1 % loss on the satellite hop"),
            ("both", "five flows of 25 ms, and 1 % loss"),
        )
        for rtt in (25, 100, 200, 400, 600)
    ),
    Figure(
        "fairness.jain",
        "Three terrestrial and three satellite flows: Jain's index",
        "1",
        more_is_better=True,
    ),
    Figure(
        "fairness.satellite-share",
        "The same: the satellite flows' part of the goodput (fair: 50)",
        "%",
        more_is_better=True,
    ),
]
