"""The figures that are measured, with their targets and what is known from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.changing_links import CHANGING_LINKS
from tests.benchmarks.dtn_world import DTN_WORLD
from tests.benchmarks.enrolment import ENROLMENT
from tests.benchmarks.figure import Figure
from tests.benchmarks.many_terminals import MANY_TERMINALS
from tests.benchmarks.routing import ROUTING
from tests.benchmarks.several_paths import SEVERAL_PATHS


def _allocation() -> Iterator[Figure]:
    """Yield the figures of the paper's experiment: what each gets, and how fair that is."""
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


def _road_ahead() -> Iterator[Figure]:
    """Yield what prediction reaches on the roads of real maps: by map, by route, a second time."""
    for name in ("andorra", "krems", "moscow"):
        for way, how in (
            ("map", "by the map alone"),
            ("route", "with the route known"),
            ("again", "the second time on the same way"),
        ):
            which = f"roads of {name.capitalize()}, {how}"
            # What is asked of a known route is asked of a way that was driven before.
            route = way != "map"
            # Each with its target, and that of the 90th percentile.
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


def _rush_hour(name: str) -> Iterator[Figure]:
    """Yield how well times are predicted on a map in rush hour, with and without learned paces."""
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
                more_is_better=part.endswith("-within"),
            )


def _matching() -> Iterator[Figure]:
    """Yield which road a vehicle is matched to, beside Meili: by map."""
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
    """Yield what lending by predictions brings, beside lending by known times: by map."""
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
            # Rounding leaves a bit.
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


_KCPTUN_AND_CO = "kcptun and warm tuic 1.0; no proxy, PEPsal, hysteria 2.0"

_ALL = [
    Figure(
        "first-byte.g",
        "First byte of a small object on a new connection, profile G",
        "RTT",
        target=1.08,
        elsewhere=f"limit 1; {_KCPTUN_AND_CO}",
    ),
    Figure(
        "object-1mb.g",
        "1 MB object, profile G, from request to last byte",
        "s",
        target=0.80,
        target_p90=1.40,
        elsewhere="ideal 0.66, with one repair 1.24; kcptun 1.27, hysteria at fixed rate 1.85, "
        "tuic 3.9, no proxy with cubic 4.8, bbr and PEPsal 5.5",
    ),
    Figure(
        "object-1mb-idle.g",
        "The same, with sessions idle for 60 s before every run",
        "s",
        target=0.80,
        target_p90=1.40,
    ),
    Figure(
        "object-8mb.g0",
        "8 MB object, profile G without loss",
        "s",
        target=1.25,
        elsewhere="ideal 1.07",
    ),
    Figure(
        "object-8mb.g",
        "8 MB object, profile G",
        "s",
        target=1.75,
        elsewhere="limit of any retransmitting transport 1.56; kcptun 1.86, hysteria 2.56, tuic "
        "3.2, Hybla end to end 6.4, bbr and PEPsal 7.5, cubic 9.7",
    ),
    Figure(
        "object-8mb.v",
        "8 MB object, profile V",
        "s",
        target=2.45,
        elsewhere="ideal 2.24; hysteria 2.83, tuic 3.06, kcptun 4.0, Hybla end to end and PEPsal "
        "on Hybla 5.46, cubic 6.5, bbr 6.7",
    ),
    Figure(
        "bulk-200mb.g",
        "Goodput of 200 MB, profile G, of what TCP/IP headers leave",
        "%",
        target=87.0,
        more_is_better=True,
        elsewhere="limit 91.6; in Mbit/s of 135: hysteria 85, kcptun 83, bbr and PEPsal on bbr "
        "71, tuic 45, Linux-style Hybla 24, cubic below 11",
    ),
    Figure(
        "bulk-1gb.g",
        "Goodput of 1 GB, profile G, of what TCP/IP headers leave",
        "%",
        target=94.0,
        more_is_better=True,
    ),
    Figure(
        "bulk-1gb.g1",
        "The 1 GB with 1 % loss",
        "%",
        target=88.0,
        more_is_better=True,
        elsewhere="loss-based TCP collapses to a few %",
    ),
    Figure(
        "upload-10mb.v",
        "Upload of 10 MB, profile V, of what headers leave",
        "%",
        target=93.0,
        more_is_better=True,
    ),
    Figure(
        "start-up.g",
        "Bytes after 5 s, profile G",
        "MB",
        more_is_better=True,
        elsewhere="limit some 74; cubic 1 to 2",
    ),
    Figure(
        "start-up-ratio.g",
        "Bytes after 5 s against no proxy with cubic, profile G",
        "ratio",
        target=30.0,
        more_is_better=True,
        elsewhere="Liu et al. 2019: 3 with a PEP",
    ),
    Figure(
        "crowd-use.g",
        "Crowd: the link's use until the last byte",
        "%",
        target=90.0,
        more_is_better=True,
    ),
    Figure("crowd-spread.g", "Crowd: the slowest client against the median", "ratio", target=1.5),
    Figure(
        "overhead-download.g",
        "Bytes on the hop beyond payload and TCP/IP headers, 200 MB down, profile G",
        "%",
        target=1.5,
    ),
    Figure(
        "overhead-upload.v",
        "Bytes on the hop beyond payload and TCP/IP headers, 10 MB up, profile V",
        "%",
        target=2.0,
    ),
    Figure(
        "overhead-download-back.g",
        "The same: bytes that the hop carries the other way, of the payload",
        "%",
    ),
    Figure(
        "overhead-upload-back.v",
        "The upload: bytes that the hop carries the other way, of the payload",
        "%",
    ),
    Figure(
        "restart-blocked.v",
        "Node killed and started again inside a blockage: from the link's return to the client's "
        "first new byte, profile V",
        "s",
    ),
    Figure(
        "restart-blocked-p95.v",
        "The same, p95 of all: 0.5 s and 5 RTT are allowed",
        "s",
        target=0.5 + 5 * 0.56,
    ),
    Figure(
        "echo.v",
        "64-byte echo in a higher class while bulk saturates the link, p95 beyond the RTT, "
        "profile V",
        "ms",
        target=100.0,
    ),
    Figure(
        "loopback-1.ratio",
        "Two nodes on loopback, 1 stream, against two chained HAProxy without splice",
        "ratio",
        target=0.6,
        more_is_better=True,
        elsewhere="goal 1.0",
    ),
    Figure(
        "loopback-64.ratio",
        "The same with 64 streams",
        "ratio",
        target=0.6,
        more_is_better=True,
        elsewhere="goal 1.0",
    ),
    *(
        Figure(f"satlink.{name}", f"The emulator: {title}", unit, target, target, more_is_better=m)
        for name, title, unit, target, m in (
            ("delay_error_p99_idle", "error of the delay, 99th percentile", "ms", 1.0, False),
            ("delay_error_p99_140mbps", "the same at 140 Mbit/s", "ms", 1.0, False),
            ("rate_error_140mbps", "error of the rate at 140 Mbit/s", "%", 1.0, False),
            ("throughput", "one TCP connection, no limit set", "Mbit/s", 500.0, True),
        )
    ),
    Figure("loopback-1.rate", "Two proxies on loopback, 1 stream", "Mbit/s", more_is_better=True),
    Figure(
        "loopback-64.rate", "Two proxies on loopback, 64 streams", "Mbit/s", more_is_better=True
    ),
    *MANY_TERMINALS,
    *DTN_WORLD,
    *CHANGING_LINKS,
    *SEVERAL_PATHS,
    Figure(
        "pep-and-cc.after-5s",
        "iperf3 of 1 GB, profile G: bytes after 5 s",
        "MB",
        more_is_better=True,
    ),
    Figure("pep-and-cc.to-90", "The same: time to 90 % of the link rate over 1 s", "s"),
    Figure(
        "pep-and-cc.steady",
        "The same: steady state, the mean after the first 10 s",
        "Mbit/s",
        more_is_better=True,
    ),
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
        "planner.1000",
        "Planning a beam of 1,000 terminals with 100 overlapping blockages, one core",
        "ms",
        target=200.0,
    ),
    Figure("planner.10000", "The same blockages among 10,000 terminals", "ms"),
    Figure("planner.ratio", "The second against the first", "ratio", target=2.0),
    *ROUTING,
    *ENROLMENT,
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
    *(
        Figure(
            f"moving-vehicles.{name}.{part}",
            f"{title}, map of {which}",
            unit,
            target=target,
            more_is_better=part == "vehicles",
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
        )
    ),
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
    *(
        Figure(
            f"{name}{label}", f"{title}{told}", unit, target, more_is_better=more, elsewhere=known
        )
        for label, told in (("", ", without a plan"), ("-plan", ", with the times in the plan"))
        for name, title, unit, target, more, known in (
            (
                "blockage-24mb.v",
                "24 MB download, profile V, blocked for 20 s at 2 s, against the ideal",
                "ratio",
                1.08,
                False,
                "kcptun 30.6 s, Hybla end to end and PEPsal on Hybla 35.4, bbr 45.3, cubic and "
                "PEPsal 47.5, tuic 48.0, hysteria cut; the ideal is 25.5 s",
            ),
            (
                "highway.v",
                "Goodput over a highway, blocked for 29 m after 90 m clear at 25 m/s, profile V, "
                "of what headers leave of the clear time",
                "%",
                92.0 if label else 78.0,
                True,
                "" if label else "limit 82 where the return must be heard first",
            ),
            (
                "real-drive.v",
                "Goodput over a drive with blockages of 35, 4, 35 and 13 s, profile V, of what "
                "headers leave of the clear time",
                "%",
                95.0 if label else 92.0,
                True,
                "",
            ),
        )
    ),
    *(
        figure
        for streams, what in ((1, "1 stream"), (64, "64 streams"))
        for figure in (
            Figure(
                f"disk-throughput-{streams}.rate",
                f"Two nodes on loopback, {what}, by where custody is",
                "Mbit/s",
                more_is_better=True,
            ),
            Figure(
                f"disk-throughput-{streams}.ratio",
                "The same on disk, against what is asked: 70 % of memory, or 80 % of the disk's "
                "rate by the copies written, whichever is less",
                "ratio",
                target=1.0,
                more_is_better=True,
            ),
        )
    ),
    Figure(
        "kill-9.violations",
        "100 runs of kill -9 amid transfers, either node: bytes lost, wrong or doubled, streams "
        "without their right end, requests kept for later lost or doubled",
        "violations",
        target=0.0,
    ),
    Figure(
        "disk-restart",
        "Restart with 1 GiB in custody, until the client's next byte",
        "s",
        target=2.0,
    ),
    Figure("disk-memory", "Memory while 1 GiB waits in custody, above idle", "MiB", target=150.0),
    Figure("disk-memory-filling", "The most while it comes in at full speed", "MiB"),
    Figure(
        "resumption.v",
        "From the link's return to the first new byte at the client, over blockages of 1 to "
        "120 s, profile V",
        "RTT",
        elsewhere="TCP up to 60 s and more",
    ),
    Figure(
        "survival.v",
        "Downloads of 1,000 that live through a blockage of 10 minutes, origin's send timeout 60 s",
        "streams",
        target=1000.0,
        more_is_better=True,
        elsewhere="none with an idle timeout",
    ),
    *(
        figure
        for way, backlog in (("up", "12 uploads"), ("down", "12 downloads"))
        for figure in (
            *(
                Figure(
                    f"after-blockage.{way}.{kind}",
                    f"New {kind}s of 10 kB in the minute from a link's return after 30 s, which "
                    f"held {backlog} in custody on disk, p95 beyond the RTT, profile V",
                    "ms",
                    target=300.0,
                )
                for kind in ("download", "upload")
            ),
            Figure(
                f"after-blockage.{way}.broken",
                "The same: exchanges and transfers that were not complete",
                "exchanges",
                target=0.0,
            ),
        )
    ),
    *(
        Figure(
            f"beside-bulk.{kind}",
            f"New {kind}s of 10 kB beside 50 uploads of their own class on 2 Mbit/s, p95 beyond "
            "the RTT, profile V",
            "ms",
            target=150.0,
        )
        for kind in ("download", "upload")
    ),
    Figure(
        "soak.failed",
        "24 clients for 20 minutes, 100 B to 16 MB both ways, profile V with 0.1 % loss, blocked "
        "for 1 to 25 s each half minute, custody on disk: exchanges that were not complete",
        "exchanges",
        target=0.0,
    ),
    Figure(
        "soak.small",
        "The same: exchanges of up to 10 kB that did not begin in a blockage, in the first RTT "
        "behind it or less than RTT + 500 ms before it, p95 beyond the RTT",
        "ms",
        target=500.0,
    ),
    *(
        Figure(
            f"soak.memory.{role}",
            f"The same: resident memory of the {role} in the last minute, above the fifth",
            "%",
            target=10.0,
        )
        for role in ("terminal", "hub")
    ),
    Figure(
        "idle-beam.upload",
        "200 idle terminals on a return link of 10 Mbit/s, 560 ms, and one that uploads: its "
        "upload, of what headers leave of the beam",
        "%",
        target=90.0,
        more_is_better=True,
    ),
    Figure(
        "idle-beam.plan",
        "The same: what the plan gives to the one that uploads, of the beam",
        "%",
        more_is_better=True,
    ),
    Figure("idle-beam.idle", "The same: what the 200 send, of the beam", "%"),
    Figure(
        "upgrade.broken",
        "1,000 downloads of 60 kbit/s through ten upgrades in place, of hub and terminal in turn, "
        "profile G without loss: those that are not whole",
        "downloads",
        target=0.0,
    ),
    Figure(
        "upgrade.wrong",
        "The same: those with bytes lost, changed or doubled",
        "downloads",
        target=0.0,
    ),
    Figure(
        "upgrade.pause",
        "The same: the longest pause of any of them, in any of the upgrades",
        "RTT",
        target=2.0,
    ),
    *_allocation(),
    Figure("resumption-p95.v", "The same, p95 of all", "RTT", target=1.5),
    Figure(
        "fairness.satellite-share",
        "The same: the satellite flows' part of the goodput (fair: 50)",
        "%",
        more_is_better=True,
    ),
]

FIGURES = {figure.id: figure for figure in _ALL}
