"""The figures of a terminal with a terrestrial path and a satellite."""

from __future__ import annotations

from tests.benchmarks.figure import Figure

# A round trip by the satellite, and 150 ms.
_GAP_MS = 530.0 + 150.0

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
]
