"""The figures of a terminal with a terrestrial path and a satellite."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figures.figure import Figure

# The subject with targets of its own beside TCPCL.
QUIC = "underpass-quic"
# A round trip by the satellite, and 150 ms; and one by the terrestrial path.
_GAP_MS = 530.0 + 150.0
_TERRESTRIAL_GAP_MS = 30.0 + 150.0


# Other set-ups for an outage than bonded over TCPCL.
_OUTAGES = (
    ("quic", "by QUIC tunnels"),
    ("failover", "pinned to the terrestrial path with the satellite to fall back on"),
    ("quic-failover", "so pinned, by QUIC tunnels"),
)


def _coded(
    size: str,
    name: str,
    p99_s: tuple[float | None, float | None],
    repair: tuple[float | None, float | None],
) -> Iterator[Figure]:
    """Yield an object's times with single losses and with bursts, and the part of repair.

    Retransmissions on request count as repair.
    """
    known = {
        "coded-1mb": "TCPCL: p90 1.24 s",
        "coded-8mb": "TCPCL: p90 1.55 s",
        "coded-200mb": "TCPCL: 121 Mbit/s",
    }
    lost = {"single": "profile G", "bursts": "profile G with 1 % lost in bursts of 20"}
    for place, (where, losses) in enumerate(lost.items()):
        figure, title = f"{name}.{where}", f"{size}, {losses}"
        single = where == "single"
        yield Figure(
            figure,
            title,
            "s",
            # The median has no target of its own.
            1.2 if single and size == "8 MB" else None,
            1.2 if single and size == "8 MB" else None,
            elsewhere=known[name] if single else "",
            subject=QUIC,
        )
        if size == "200 MB":
            rate = 123.0 if single else None
            yield Figure(f"{figure}.rate", title, "Mbit/s", rate, more_is_better=True, subject=QUIC)
        else:
            yield Figure(f"{figure}.p99", f"{title}: p99 of all", "s", p99_s[place], subject=QUIC)
        repaired = f"{title}: repair, of all symbols sent"
        yield Figure(f"{figure}.repair", repaired, "%", repair[place], subject=QUIC)


PATHS = [
    Figure(
        "bonding.rate",
        "100 MB over terrestrial 10 Mbit/s, 30 ms and satellite 40 Mbit/s, 530 ms",
        "Mbit/s",
        45.0,
        more_is_better=True,
        elsewhere="Bujari et al.: 80 s terrestrial, 50 s satellite (16 Mbit/s), 30 Mbit/s by MPTCP",
    ),
    Figure(
        "outage.gap",
        "200 MB over both, the terrestrial path cut at 15 s: the longest gap from then on",
        "ms",
        _GAP_MS,
    ),
    *(
        Figure(
            f"outage.{name}.gap", f"the same, {title}", "ms", _GAP_MS, subject=f"underpass-{name}"
        )
        for name, title in _OUTAGES
    ),
    Figure(
        "outage.rate",
        "the same: what came from that gap on, of what headers leave of the satellite",
        "%",
        93.0,
        more_is_better=True,
    ),
    Figure(
        "black-hole.gap",
        "200 MB over both, the terrestrial path drops all from 15 s on: the longest gap",
        "ms",
        _GAP_MS,
        elsewhere="OpenMPTCProuter: 15 to 30 s",
    ),
    Figure(
        "black-hole.satellite",
        "40 MB over both, the satellite drops all for 2 s: the longest gap in that time",
        "ms",
        _TERRESTRIAL_GAP_MS,
    ),
    Figure(
        "black-hole.satellite-forward",
        "the same, the satellite drops what it is given forward, and nothing on the return link",
        "ms",
        _TERRESTRIAL_GAP_MS,
    ),
    Figure(
        "black-hole.known",
        "200 MB over both, the satellite blocked for 5 s, known 10 s before: longest gap beyond "
        "that of the 5 s before",
        "ms",
        20.0,
    ),
    Figure(
        "one-way.rate",
        "100 MB, forward by satellite 40 Mbit/s, 265 ms and return by terrestrial 1 Mbit/s, 15 ms",
        "Mbit/s",
        37.0,
        more_is_better=True,
    ),
    Figure(
        "one-way.object",
        "20 kB by the same: median, of which 280 ms are the way of request and answer",
        "ms",
        380.0,
    ),
    Figure(
        "on-demand-path.download",
        "100 MB over terrestrial 10 Mbit/s and a satellite that is brought up for it, 40 Mbit/s, "
        "530 ms",
        "s",
        21.0,
    ),
    Figure(
        "on-demand-path.up",
        "the same: how long the satellite was up, 5 s of idle time included",
        "s",
        29.0,
    ),
    Figure(
        "on-demand-path.small",
        "20 kB each second by the same for half a minute: how long the satellite was up",
        "s",
        0.0,
    ),
    Figure(
        "on-demand-path.first-byte",
        "the terrestrial path dies, and 20 kB are asked for: the first byte by the satellite",
        "s",
        3.5,
    ),
    Figure(
        "offload.rtt",
        "Gold 6 and Silver 12 Mbit/s on terrestrial 10 Mbit/s, from 2 s after Silver moved: the "
        "hop's round trip, p95",
        "ms",
        60.0,
        elsewhere="Bujari et al.: 500 ms without migration, below 100 ms with",
    ),
    Figure(
        "offload.gold",
        "the same: Gold's median page of 100 kB, of what it takes alone",
        "%",
        110.0,
    ),
    Figure(
        "offload.silver",
        "the same, from 2 round trips after its move: Silver's median page of 100 kB, of what it "
        "takes alone on the satellite",
        "%",
        110.0,
    ),
    Figure(
        "unequal.rate",
        "200 MB over LTE 40 Mbit/s, 70 ms and GEO 20 Mbit/s, 640 ms, 0.5 % lost; told nothing",
        "Mbit/s",
        more_is_better=True,
        elsewhere="mqvpn: 31.5 in its datagram mode, single path 31.7",
    ),
    Figure("unequal.lte-geo", "the same: time, of the ideal one", "%", 108.0),
    *(
        Figure(f"unequal.{name}", title, "%", 98.0, 98.0, more_is_better=True)
        for name, title in (
            ("lte-geo-alone", "the same: rate, of that of LTE alone"),
            ("pairs-alone", "100 MB over 16 pairs: rate, of that of the better path alone"),
        )
    ),
    Figure(
        "unequal.pairs",
        "100 MB over 16 pairs of rate (1 to 20), delay (1 to 20) and loss (0 to 2 %): time, of the "
        "ideal one",
        "%",
        108.0,
        in_each=True,
    ),
    Figure(
        "unequal-mirrored.pairs",
        "100 MB over 9 pairs whose far path (4 to 20 times as far, 0 to 2 % lost) is 4 to 20 times "
        "as fast as the near one: time, of the ideal one",
        "%",
        108.0,
        in_each=True,
    ),
    Figure(
        "unequal-mirrored.pairs-alone",
        "The same: rate, of that of the better path alone",
        "%",
        98.0,
        98.0,
        more_is_better=True,
    ),
    Figure(
        "minfct.mean",
        "30 users' contents over terrestrial 2 Mbit/s, 25 ms and satellite 8 Mbit/s, 300 ms: mean "
        "completion time",
        "ms",
        None,
        elsewhere="Bouttier et al.: 32 % below MPTCP, 46 % below satellite, 66 % below terrestrial",
    ),
    Figure("minfct.broken", "the same: contents that never came", "contents", 0.0),
    *(
        Figure(f"minfct.{name}", f"the same: {title}", "%", target, more_is_better=True)
        for name, title, target in (
            ("below-mptcp", "how far below split proxies with MPTCP", 45.0),
            ("below-satellite", "how far below split proxies by the satellite", 60.0),
            ("below-terrestrial", "how far below split proxies by the terrestrial path", 75.0),
        )
    ),
    Figure(
        "minfct.pinned-below-satellite",
        "the same: how far ours, pinned to the satellite, is below split proxies there",
        "%",
        45.0,
        more_is_better=True,
        subject="underpass-satellite",
    ),
    Figure(
        "minfct.crowd-below-satellite",
        "200 users: how far below split proxies by the satellite",
        "%",
        20.0,
        more_is_better=True,
    ),
    Figure(
        "minfct.of-the-best",
        "from 5 users on: the mean completion time, of that of the best other one where that is "
        "nearest",
        "%",
        105.0,
    ),
    Figure(
        "minfct-tls.mean",
        "30 users' contents by HTTP/2 over TLS, the same paths: mean completion time",
        "ms",
    ),
    Figure("minfct-tls.broken", "the same: contents that never came", "contents", 0.0),
    Figure("offload.broken", "the same: pages that never came", "pages", 0.0),
    *_coded("1 MB", "coded-1mb", (0.72, 0.80), (None, 15.0)),
    *_coded("8 MB", "coded-8mb", (None, None), (None, None)),
    *_coded("200 MB", "coded-200mb", (None, None), (0.6, 4.0)),
    *(
        Figure(
            f"quic.goodput-{percent}",
            f"1 GB, profile G with {percent} % loss, of what headers leave",
            "%",
            target,
            more_is_better=True,
            subject=QUIC,
        )
        for percent, target in (("0.05", 96.0), ("1", 94.0))
    ),
    Figure(
        "quic-blockages.down",
        "From the link's return to the first new byte at the client, p95 beyond the round trip, "
        "over blockages of 1 to 120 s, profile V",
        "ms",
        180.0,
        subject=QUIC,
    ),
    Figure(
        "quic-blockages.up",
        "The same of an upload, to the first new byte at the origin, p95 beyond half a round trip",
        "ms",
        180.0,
        subject=QUIC,
    ),
]
