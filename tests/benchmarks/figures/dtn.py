"""The figures of bundles of other applications, routes through contact plans, and enrolment."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figures.figure import Figure

_KNOWN = {
    "1k": "HDTN 20,500; ION over TCPCLv3, one hop, 7,800; dtn7-rs 7,700; Hardy 3,900 and less",
    "64k": "HDTN 3.3; Hardy 2.2; ION 2.1; dtn7-rs 0.012",
    "1m": "HDTN 4.3; ION 4.1; Hardy 2.7; dtn7-rs 0.17",
}

_THROUGH = "renewal and revocation, a blockage of 10 min and a killed service"
_CHANGES = {
    "cut": "a contact ends 30 s earlier",
    "restored": "a contact gets 30 s back",
    "booking": "10 MB are booked in all contacts of a route",
    "new": "a contact is added",
}


def _routing() -> Iterator[Figure]:
    """Yield the time of all queries in a small plan, and of single changes in a large one."""
    yield Figure(
        "sabr.queries",
        "4,000 queries in a contact plan of 1,000 contacts, 50 nodes, one core",
        "ms",
    )
    for kind, what in _CHANGES.items():
        which = f"100,000 contacts, 500 nodes: {what}, with all routes found again"
        yield Figure(f"sabr.{kind}-median", f"{which}, the median of 250", "ms")
        yield Figure(f"sabr.{kind}-longest", f"{which}, the longest of 250", "ms", target=50.0)


DTN = [
    *(
        figure
        for name, size, unit, target, target_alone in (
            ("1k", "1 KiB", "bundles/s", 60_000.0, None),
            ("64k", "64 KiB", "Gbit/s", 8.0, 15.0),
            ("1m", "1 MiB", "Gbit/s", 8.0, None),
        )
        for figure in (
            Figure(
                f"chain-two.{name}",
                "Generator, two nodes and sink over TCPCLv4 on a loopback, CRC32C, memory, "
                f"bundles of {size}",
                unit,
                target,
                more_is_better=True,
                elsewhere=_KNOWN[name],
            ),
            Figure(
                f"chain-alone.{name}",
                "The same, the generator's bundles straight to the sink",
                unit,
                target_alone,
                more_is_better=True,
            ),
        )
    ),
    Figure(
        "chain-custody.1k",
        "Generator, two nodes and sink over TCPCLv4 on a loopback, bundles of 1 KiB under custody "
        "on disk",
        "bundles/s",
        15_000.0,
        more_is_better=True,
        elsewhere="Hardy with fsync 850; dtn7-rs on sled 570",
    ),
    Figure(
        "ltp.processor",
        "LTP between two engines without sockets, simulated 600 ms and 1 % loss, 2 GB red in "
        "blocks of 1 MiB, per second of one core",
        "Gbit/s",
        2.0,
        more_is_better=True,
    ),
    Figure(
        "ltp.line-share",
        "the same: blocks' bits, of what a simulated line of 1 Gbit/s carries",
        "%",
        more_is_better=True,
    ),
    Figure(
        "ltp-live.goodput",
        "1 GB over LTP, all red, profile G, of what TCP/IP headers would leave",
        "%",
        93.0,
        more_is_better=True,
    ),
    Figure(
        "bundle-file.memory",
        "a file of 10 GB as one bundle by `bp send`, loopback: the most memory of either node",
        "MiB",
        100.0,
    ),
    Figure(
        "bundle-file.rate",
        "the same: from the file to whom it is for, with a copy on the disk at either node",
        "MB/s",
        more_is_better=True,
    ),
    Figure(
        "waiting-bundles.memory",
        "1,000,000 bundles of 1 KiB under custody on disk for an absent neighbour: the node's "
        "memory for each, above idle",
        "B",
        500.0,
    ),
    Figure(
        "waiting-bundles.drained",
        "The same: how fast they go on when the neighbour comes",
        "bundles/s",
        15_000.0,
        more_is_better=True,
    ),
    *_routing(),
    Figure("enrolment.first-byte", "from a bare node to a client's first byte", "s", 60.0),
    Figure(
        "bare-container.commands",
        "from a bare container with apt's lists to a client's first byte: commands typed in it",
        "",
        3.0,
    ),
    Figure("bare-container.first-byte", "the same: time beyond downloads", "s", 60.0),
    Figure("enrolment.lost", f"{_THROUGH}: lost", "", 0.0),
    Figure("enrolment.doubled", f"{_THROUGH}: doubled", "", 0.0),
]
