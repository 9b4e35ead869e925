"""The figures of bundles that are other applications', and of other implementations' ways."""

from __future__ import annotations

from tests.benchmarks.figure import Figure

_KNOWN = {
    "1k": "HDTN 20,500; ION over TCPCLv3, one hop, 7,800; dtn7-rs 7,700; Hardy 3,900 and less",
    "64k": "HDTN 3.3; Hardy 2.2; ION 2.1; dtn7-rs 0.012",
    "1m": "HDTN 4.3; ION 4.1; Hardy 2.7; dtn7-rs 0.17",
}

DTN_WORLD = [
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
]
