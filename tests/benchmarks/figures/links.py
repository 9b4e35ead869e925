"""The figures of links that differ from their configuration, or change."""

from __future__ import annotations

from tests.benchmarks.figures.figure import Figure


def _loaded(
    experiment: str,
    title: str,
    *,
    goodput: float | None = None,
    queue: float | None = None,
    echo: float | None = None,
    small: float | None = None,
    ahead: bool = False,
) -> list[Figure]:
    """Return the figures of one download under load, and of the traffic beside it."""
    return [
        Figure(
            f"{experiment}.goodput",
            f"{title}: goodput of a download, of what the link carries after headers and losses",
            "%",
            goodput,
            more_is_better=True,
            ahead=ahead,
        ),
        Figure(
            f"{experiment}.queue",
            "The same: p95 of the hop's queue over time",
            "ms",
            queue,
            ahead=ahead,
        ),
        Figure(
            f"{experiment}.echo",
            "The same: 64-byte echo in a higher class, p95 beyond the RTT",
            "ms",
            echo,
        ),
        Figure(
            f"{experiment}.small",
            "The same: new downloads of 10 kB beside it, p95 beyond the RTT",
            "ms",
            small,
        ),
    ]


_UNCONFIGURED = [
    figure
    for label, told, first, rest in (
        ("first", "very first start", 2.2, 80.0),
        ("second", "second start", None, None),
        ("told", "told the rate", None, None),
    )
    for figure in (
        Figure(f"unconfigured.{label}.8mb", f"8 MB, profile G, {told}", "s", first),
        Figure(
            f"unconfigured.{label}.200mb",
            f"200 MB behind it, profile G, {told}: goodput, of what TCP/IP headers leave",
            "%",
            rest,
            more_is_better=True,
        ),
    )
] + [
    Figure(
        f"unconfigured.second-to-told.{size}",
        f"{size.removesuffix('mb')} MB, profile G: goodput of the second start against the told",
        "%",
        97.0,
        more_is_better=True,
    )
    for size in ("8mb", "200mb")
]

_BOTH_WAYS = [
    figure
    for label, told in (("told", "told rates and RTT"), ("untold", "told nothing"))
    for figure in (
        *(
            Figure(
                f"both-ways.{label}.{way}",
                f"Three downloads and three uploads at once for a minute, profile V, {told}: "
                f"goodput {way}, of what headers and the other way's ACKs leave",
                "%",
                93.0,
                more_is_better=True,
            )
            for way in ("down", "up")
        ),
        Figure(
            f"both-ways.{label}.queue",
            "The same: p95 of both queues together, over time",
            "ms",
            100.0,
        ),
        Figure(
            f"both-ways.{label}.rtt",
            "The same: RTT of the sessions, p95 of the worst above its least",
            "ms",
            100.0,
        ),
    )
]

LINKS = [
    *_BOTH_WAYS,
    *_UNCONFIGURED,
    *_loaded("wrong-hint.half", "Profile G, link with 1/2 of the hint", goodput=93.0, small=150.0),
    *_loaded(
        "wrong-hint.seventh", "Profile G, link with 1/7 of the hint", goodput=93.0, small=150.0
    ),
    *_loaded("wrong-hint.twice", "Profile G, link with twice the hint", goodput=93.0),
    *_loaded("fade", "GEO fade of 8 : 1 and back in 120 s", goodput=93.0, queue=100.0, echo=150.0),
    *_loaded("leo", "LEO, 10 to 70 Mbit/s, another satellite each 15 s for 300 s", ahead=True),
    Figure("leo.below-oracle", "The same: goodput below the oracle's", "points", 4.0),
    Figure("leo.queue-above-oracle", "The same: p95 of the queue above the oracle's", "ms", 20.0),
    *_loaded("mmwave", "1 Gbit/s, 20 ms, blocked for 0.1 to 1 s now and then", goodput=85.0),
    Figure(
        "mmwave.resumption",
        "The same: from each line of sight's return to the first new byte, p95",
        "RTT",
        2.0,
    ),
    Figure(
        "bursts.g",
        "Goodput of 1 GB, profile G with bursts of loss, 1 % in all, 20 packets in the mean, of "
        "what TCP/IP headers leave",
        "%",
        90.0,
        more_is_better=True,
    ),
    *(
        Figure(
            f"jitter.{case}",
            f"150 MB, profile V, {title}: goodput against the subject's own without",
            "%",
            95.0,
            more_is_better=True,
        )
        for case, title in (
            ("reordered", "jitter of \N{PLUS-MINUS SIGN} 15 ms with reordering"),
            ("bunched", "ACKs in bunches of 100 ms"),
            ("both", "both"),
        )
    ),
    Figure(
        "on-demand.upload",
        "Upload of 10 MB, profile V with its return link on demand (frames of 100 ms, one RTT to "
        "be granted, 5 % at once), of what headers leave",
        "%",
        88.0,
        more_is_better=True,
    ),
    Figure("on-demand.echo", "The same link idle: 64-byte echo, median", "RTT", 1.1),
    Figure("on-demand.echo-p95", "The same, p95 beyond the RTT", "ms", 130.0),
    *(
        figure
        for modem, title in (("drop-tail", "a drop-tail modem"), ("fair-queue", "a fair one"))
        for figure in (
            Figure(
                f"shared-hop.{modem}.goodput",
                f"Profile V, 30 % taken by UDP of others for 20 s, {title}: goodput of a download "
                "meanwhile, of the rest after headers",
                "%",
                93.0,
                more_is_better=True,
            ),
            Figure(
                f"shared-hop.{modem}.queue",
                "The same: p95 of the hop's queue meanwhile",
                "ms",
                100.0,
            ),
            Figure(
                f"shared-hop.{modem}.others",
                "The same: what arrived meanwhile of the UDP of others",
                "%",
                more_is_better=True,
            ),
        )
    ),
    *_loaded(
        "fallback",
        "Profile V, no BPF and no CAP_NET_ADMIN",
        queue=100.0,
        echo=150.0,
    ),
    Figure(
        "fallback.to-bbr",
        "The same: goodput against no proxy with bbr",
        "ratio",
        1.0,
        more_is_better=True,
    ),
]
