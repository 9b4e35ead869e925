"""The figures of the way of the data: objects, bulk, uploads, crowds, short blockages."""

from __future__ import annotations

from tests.benchmarks.figures.figure import Figure

_KCPTUN_AND_CO = "kcptun and warm tuic 1.0; no proxy, PEPsal, hysteria 2.0"

DATA = [
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
    *(
        Figure(
            f"loopback-cost-{streams}.{kind}",
            f"{title} of two nodes on loopback for 1 MB, {streams} stream{'s' * (streams > 1)}",
            unit,
        )
        for kind, title, unit in (
            ("instructions", "Instructions", "instructions/MB"),
            ("cpu", "Processor time", "ms/MB"),
        )
        for streams in (1, 64)
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
]
