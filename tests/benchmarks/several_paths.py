"""The figures of a terminal with a terrestrial path and a satellite."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figure import Figure

# A round trip by the satellite, and 150 ms.
_GAP_MS = 530.0 + 150.0


def _coded(
    name: str, where: str, p99_s: float, repair_percent: float, rate_mbps: float | None
) -> Iterator[Figure]:
    """Yield what coded datagrams reach, where repair counts with what was asked for."""
    single = name == "coded"
    known = "TCPCL: p90 1.24 s" if single else ""
    yield Figure(f"{name}.1mb", f"1 MB, {where}", "s", elsewhere=known)
    yield Figure(f"{name}.1mb-p99", "The same, p99 of all", "s", p99_s)
    yield Figure(f"{name}.8mb", f"8 MB, {where}", "s", 1.2 if single else None)
    yield Figure(f"{name}.200mb", f"200 MB, {where}", "Mbit/s", rate_mbps, more_is_better=True)
    for size, target in (("1", None if single else 15.0), ("8", None), ("200", repair_percent)):
        title = f"{size} MB, {where}: repair, of all symbols sent"
        yield Figure(f"{name}.{size}mb-repair", title, "%", target)


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
    Figure("offload.broken", "the same: pages that never came", "pages", 0.0),
    *_coded("coded", "profile G", 0.72, 0.6, 123.0),
    *_coded("coded-bursts", "profile G with 1 % lost in bursts of 20", 0.80, 4.0, None),
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
        "quic.resumption",
        "From the link's return to the first new byte at the client, p95 beyond the round trip, "
        "over blockages of 1 to 120 s, profile V",
        "ms",
        180.0,
    ),
]
