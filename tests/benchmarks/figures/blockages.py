"""The figures of long blockages, of restarts and of custody on disk."""

from __future__ import annotations

from tests.benchmarks.figures.figure import Figure

BLOCKAGES = [
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
    Figure("resumption-p95.v", "The same, p95 of all", "RTT", target=1.5),
]
