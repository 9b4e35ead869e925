"""The figures of a terminal with a terrestrial path and a satellite."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figure import Figure

# A round trip by the satellite, and 150 ms.
_GAP_MS = 530.0 + 150.0


def _coded(
    size: str,
    name: str,
    p99_s: tuple[float | None, float | None],
    repair: tuple[float | None, float | None],
) -> Iterator[Figure]:
    """Yield what an object takes with single losses and with bursts, and what repair is of it.

    What was asked for counts as repair.
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
        )
        if size == "200 MB":
            rate = 123.0 if single else None
            yield Figure(f"{figure}.rate", title, "Mbit/s", rate, more_is_better=True)
        else:
            yield Figure(f"{figure}.p99", f"{title}: p99 of all", "s", p99_s[place])
        repaired = f"{title}: repair, of all symbols sent"
        yield Figure(f"{figure}.repair", repaired, "%", repair[place])


SEVERAL_PATHS = [
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
    Figure(
        "black-hole.gap",
        "200 MB over both, the terrestrial path drops all from 15 s on: the longest gap",
        "ms",
        _GAP_MS,
        elsewhere="OpenMPTCProuter: 15 to 30 s",
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
    Figure("offload.silver", "the same: Silver's median page of 100 kB", "ms", None),
    Figure(
        "minfct.mean",
        "30 users' objects over terrestrial 2 Mbit/s, 25 ms and satellite 8 Mbit/s, 300 ms: mean "
        "completion time",
        "ms",
        None,
        elsewhere="Bouttier et al.: 32 % below MPTCP, 46 % below satellite, 66 % below terrestrial",
    ),
    Figure("minfct.broken", "the same: objects that never came", "objects", 0.0),
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
        )
        for percent, target in (("0.05", 96.0), ("1", 94.0))
    ),
    Figure(
        "quic-blockages.down",
        "From the link's return to the first new byte at the client, p95 beyond the round trip, "
        "over blockages of 1 to 120 s, profile V",
        "ms",
        180.0,
    ),
]
