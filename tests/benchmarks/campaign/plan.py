"""Which experiments a campaign has, how often each subject runs, and how long that takes.

There is a campaign for each volume of the report. Each takes two hours at most, so that it can be
completed on a machine that is lent for an afternoon.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks import subjects
from tests.benchmarks.bench import OURS

LIMIT_S = 2 * 3600.0
# To build the test beds, wait for the first idle time, and take the test beds down.
_AROUND_S = 75.0
# A subject at its second start is stopped and started before each run, and learns before its first.
_RESTART_S, _LEARNING_S = 8.0, 22.0

# The part of the machine that a saturated profile V needs, with room to spare.
_V = 0.2

_WITHOUT_PROXY = ("no-proxy-cubic", "no-proxy-bbr")
_KCPTUN = ("kcptun", "kcptun-fast3")
_SHARING = (OURS, "single-box", "no-proxy-cubic", "no-proxy-hybla")
_RIVALS = (OURS, *_WITHOUT_PROXY, *_KCPTUN)
_MOST = (OURS, *_WITHOUT_PROXY, "kcptun")


@dataclass(frozen=True)
class Entry:
    """One experiment of a campaign.

    `ours_s` and `peer_s` are the known durations of one run, `fixed_s` the time that does not
    depend on their number. `at_once` is how many runs an experiment makes in parallel. `share` is
    the part of the machine that it needs: with 1 it is measured alone, else beside others.
    """

    name: str
    ours_s: float
    peer_s: float = 0.0
    subjects: tuple[str, ...] = (OURS,)
    # How many variants each run has: with and without a plan, both ways, by cell.
    ours_times: int = 1
    peer_times: int = 1
    # Further subjects that the experiment adds by itself: ours at its second start.
    added: int = 0
    fixed_s: float = _AROUND_S
    # For the hop to fall quiet between two runs.
    between_s: float = 2.0
    at_once: int = 1
    share: float = 1.0
    # More runs than the rule below, for short runs or where the figure is a 95th percentile.
    runs_at_least: int = 0
    # Set in a trial.
    scale: float = 1.0

    @property
    def runs(self) -> int:
        """Return how many runs ours has."""
        least = 10 if self.ours_s < 30 else 5 if self.ours_s < 120 else 3
        return self._scaled(max(least, self.runs_at_least))

    @property
    def peer_runs(self) -> int:
        """Return how many runs each other subject has."""
        return self._scaled(5 if self.peer_s < 30 else 2)

    @property
    def expected_s(self) -> float:
        """Return how long the experiment takes."""
        peers = len(self.subjects) - 1
        ours_s = self.runs * self.ours_times * (self.ours_s + self.between_s)
        peers_s = peers * self.peer_runs * self.peer_times * (self.peer_s + self.between_s)
        peers_s += self.added * self.peer_runs * self.peer_times * (self.ours_s + _RESTART_S)
        peers_s += self.added * self.fixed_s / _AROUND_S * _LEARNING_S
        return self.fixed_s + (ours_s + peers_s) / self.at_once

    def _scaled(self, runs: int) -> int:
        return max(1, math.ceil(runs * self.scale))


# A campaign has no time for these experiments, or no use: they are run by themselves.
BY_HAND = (
    "bare-container",
    "bundle-file",
    "console-hour",
    "loopback-cost",
    "ltp-live",
    "soak",
    "waiting-bundles",
)

# Each table of the project's README takes its figures from one volume.
VOLUMES: Mapping[str, tuple[str, ...]] = {
    "data": (
        *("first-byte", "object-1mb", "object-1mb-idle", "object-8mb-no-loss", "object-8mb"),
        *("object-8mb-vehicle", "bulk-200mb", "bulk-1gb", "bulk-1gb-loss", "upload", "start-up"),
        *("crowd", "echo", "blockage-24mb", "highway", "satlink", "loopback"),
    ),
    "blockages": (
        *("real-drive", "resumption", "after-blockage", "survival", "kill-9", "restart-blocked"),
        *("disk-throughput", "disk-restart", "pep-and-cc"),
    ),
    "hub": (
        *("shards", "swarm", "swarm-active", "swarm-streams", "hostile", "beside-bulk"),
        *("idle-beam", "upgrade", "idle-streams"),
    ),
    "links": (
        *("unconfigured", "mmwave", "bursts", "wrong-hint", "fade", "leo", "both-ways", "jitter"),
        *("fallback", "shared-hop", "on-demand"),
    ),
    "paths": (
        *("coded-1mb", "coded-8mb", "coded-200mb", "quic", "quic-blockages", "bonding", "outage"),
        *("black-hole", "offload", "minfct", "minfct-tls", "unequal", "one-way"),
        *("unequal-mirrored", "on-demand-path"),
    ),
    "lending": ("allocation",),
    "beam": (
        *("fairness", "goodput-rtt", "planner", "report-to-plan", "control-loss"),
        *("position-reports", "console", "console-hop", "console-hundred", "shared-fade"),
    ),
    "road": (
        *("prediction", "road-ahead", "road-ahead-lending", "matching", "moving-vehicles", "sky"),
        *("sky-in-the-loop", "two-processes", "closed-loop"),
    ),
    "dtn": ("chain", "ltp", "sabr", "enrolment"),
}

# The durations and shares were measured on two cores: a saturated profile V with all its programs
# needs 0.15 of them, three at once 0.48.
CAMPAIGN = (
    Entry("pep-and-cc", 64.0, 130.0, (OURS, *_WITHOUT_PROXY), ours_times=2, share=0.75),
    Entry("survival", 760.0, fixed_s=0.0, share=0.25),
    # Six at once on beams of 8 Mbit/s; when they start, they keep all processors busy.
    Entry("allocation", 310.0, 310.0, (OURS, "single-box"), 12, 8, at_once=6),
    # Downloads and uploads, each run on a test bed of its own.
    Entry("shared-fade", 265.0, ours_times=2, fixed_s=0.0, share=_V),
    Entry("shards", 10.0, fixed_s=0.0, share=0.25),
    # Two downloads of 45 s and one of 11 s.
    Entry("black-hole", 34.0, ours_times=3, share=_V),
    Entry("echo", 26.0, 28.0, _RIVALS, share=_V),
    Entry("idle-beam", 75.0, share=0.15),
    Entry("start-up", 6.0, 6.0, _RIVALS),
    Entry("fairness", 125.0, 125.0, _SHARING, share=0.15),
    Entry("object-8mb-no-loss", 1.1, 5.0, tuple(subjects.NAMES), between_s=1.0),
    Entry("on-demand", 80.0, 95.0, _MOST, share=_V, added=1),
    Entry("coded-8mb", 1.6, ours_times=4, between_s=1.0, runs_at_least=20),
    Entry("fade", 123.0, 130.0, _MOST, share=0.4, added=1),
    # Ten minutes of each are idle; only the hub's own processor time counts.
    Entry("swarm", 800.0, fixed_s=0.0, share=0.25),
    Entry("coded-200mb", 14.0, ours_times=4),
    # A run of 25 s in 15 cells; the five round-trip times are measured in parallel.
    Entry("goodput-rtt", 30.0, 30.0, _SHARING, 15, 15, at_once=5, share=0.4),
    Entry("fallback", 34.0, 38.0, _MOST, share=_V, added=1),
    # Three of its 25 minutes at once.
    Entry("resumption", 37.0, 90.0, _RIVALS, runs_at_least=30, share=0.15),
    Entry("shared-hop", 34.0, 34.0, _MOST, 2, 2, fixed_s=2 * _AROUND_S, share=_V, added=1),
    Entry("leo", 303.0, 305.0, _MOST, share=_V, added=1),
    Entry("ltp", 4.0, fixed_s=20.0, between_s=0.0, share=0.5),
    # Over TCP streams and coded datagrams, with single losses and with bursts.
    Entry("coded-1mb", 0.7, ours_times=4, between_s=1.0, runs_at_least=100, share=0.5),
    Entry("real-drive", 357.0, 357.0, (OURS, "no-proxy-bbr", "kcptun"), ours_times=2, share=_V),
    # Two losses, over both layers.
    Entry("quic", 60.0, ours_times=4),
    Entry("first-byte", 0.7, 1.3, tuple(subjects.NAMES), between_s=1.0, share=0.3),
    # Down and up.
    Entry("quic-blockages", 37.0, ours_times=4, runs_at_least=20, share=0.15),
    # A drive over each map, in virtual time, planned in three ways.
    Entry("road-ahead-lending", 1.6, fixed_s=20.0, between_s=0.0, runs_at_least=40, share=0.5),
    Entry("object-8mb", 1.6, 5.0, tuple(subjects.NAMES), between_s=1.0),
    Entry("after-blockage", 125.0, ours_times=2, fixed_s=30.0, share=_V),
    Entry("upload", 44.0, 55.0, _RIVALS, share=_V),
    Entry("report-to-plan", 5.0, ours_times=2, fixed_s=30.0, runs_at_least=24, share=0.5),
    # Three cases of half a minute, on half of profile G on average, like the fade.
    Entry("wrong-hint", 32.0, 34.0, _MOST, 3, 3, fixed_s=3 * _AROUND_S, share=0.4, added=1),
    # Ten thousand terminals are registered first.
    Entry("sabr", 15.0, fixed_s=120.0, between_s=0.0, share=0.5),
    Entry("object-1mb-idle", 60.0, 0.0, _RIVALS, runs_at_least=10, share=0.2),
    Entry("beside-bulk", 120.0, fixed_s=0.0, between_s=0.0, share=0.1),
    Entry("object-8mb-vehicle", 2.5, 6.0, tuple(subjects.NAMES), between_s=1.5, share=_V),
    Entry("upgrade", 330.0, fixed_s=0.0, between_s=0.0),
    Entry("satlink", 0.0, fixed_s=60.0, between_s=0.0),
    # A drive over each map; Meili takes most of the time.
    Entry("matching", 5.0, fixed_s=10.0, between_s=0.0, runs_at_least=24, share=0.5),
    Entry("restart-blocked", 16.0, fixed_s=30.0, runs_at_least=20, share=_V),
    # Beside a bulk user and beside some thirty attacks.
    Entry("hostile", 750.0, fixed_s=0.0, share=0.25),
    Entry("blockage-24mb", 26.0, 40.0, _RIVALS, ours_times=2, share=_V),
    # A blockage of ten minutes.
    Entry("enrolment", 2.0, fixed_s=660.0, between_s=0.0, share=0.3),
    Entry("console", 50.0, fixed_s=90.0, between_s=0.0, share=1.0),
    # The form and the fleet; a thousand terminals are registered first.
    Entry("console-hop", 20.0, fixed_s=90.0, between_s=0.0),
    # Without consoles and with a hundred.
    Entry("console-hundred", 85.0, fixed_s=60.0, between_s=0.0),
    # A drive over each map, with and without its route, again and after ten, and some of a fleet;
    # and forty of each unusual kind.
    Entry("road-ahead", 2.5, fixed_s=120.0, between_s=0.0, runs_at_least=200, share=0.5),
    Entry("jitter", 33.0, 45.0, _MOST, 4, 4, share=_V, added=1),
    # On a map of a town, and on that of a country, which takes a minute to import.
    # Alone: the service takes one of the two cores, its senders and the measurement the other.
    Entry("moving-vehicles", 50.0, fixed_s=150.0, between_s=0.0),
    # By the map, and by known times: ten minutes each, and up to two for the ledger.
    Entry("closed-loop", 720.0, ours_times=2, fixed_s=0.0, share=0.25),
    # With two processes and with one, alone: both cores are saturated where more is offered.
    Entry("two-processes", 47.0, ours_times=2, fixed_s=180.0, between_s=0.0),
    # Over both paths, over the satellite, 85 s over the terrestrial path, and by split proxies.
    Entry("bonding", 45.0, ours_times=8, share=_V),
    # Half a minute of eight subjects each, with six numbers of users; four have two runs of three.
    Entry("minfct", 1400.0, share=_V),
    Entry("minfct-tls", 320.0, share=_V),
    # LTE and GEO; and once 16 pairs of hops, each on a test bed of its own.
    Entry("unequal", 72.0, fixed_s=1050.0, share=0.4),
    # Nine pairs.
    Entry("unequal-mirrored", 0.0, fixed_s=600.0, between_s=0.0, share=0.4),
    Entry("sky", 9.0, fixed_s=30.0, between_s=0.0, share=0.5),
    # A canyon each, and a drive through it in virtual time, planned in three ways.
    Entry("sky-in-the-loop", 10.0, fixed_s=10.0, between_s=0.0, runs_at_least=20, share=0.5),
    # Over TCPCL, over QUIC, pinned, and over MPTCP.
    Entry("outage", 50.0, ours_times=5, share=_V),
    # 100 MB and objects of 20 kB, with one path each way and with the satellite alone.
    Entry("one-way", 23.0, ours_times=2, share=_V),
    # 100 MB with the satellite on demand and always up, half a minute of small exchanges, a cut.
    Entry("on-demand-path", 65.0, ours_times=2, fixed_s=120.0, share=_V),
    # With migration and without, and each class alone.
    Entry("offload", 200.0, share=_V),
    Entry("kill-9", 6.2, fixed_s=30.0, runs_at_least=100, share=_V),
    Entry("object-1mb", 0.7, 3.5, tuple(subjects.NAMES), between_s=1.0, share=0.5),
    Entry("control-loss", 145.0, ours_times=2, fixed_s=0.0, share=0.15),
    # Ours twice: told, and told nothing.
    Entry("both-ways", 62.0, 62.0, _MOST, ours_times=2, fixed_s=2 * _AROUND_S, share=_V, added=1),
    Entry("highway", 125.0, 125.0, _RIVALS, ours_times=2, share=_V),
    Entry("bulk-200mb", 13.5, 68.0, (*_RIVALS, "underpass-hybla", "no-proxy-hybla")),
    Entry("bulk-1gb", 62.0, 150.0, (OURS, "no-proxy-bbr")),
    Entry("bulk-1gb-loss", 64.0, 165.0, (OURS, "no-proxy-bbr", "kcptun-fast3")),
    Entry("crowd", 8.0, 18.0, _RIVALS),
    Entry("loopback", 25.0, fixed_s=20.0, between_s=0.0),
    Entry("chain", 46.0, fixed_s=10.0, between_s=0.0),
    Entry("idle-streams", 19.0, fixed_s=0.0),
    Entry("swarm-active", 60.0, fixed_s=0.0),
    Entry("swarm-streams", 130.0, fixed_s=0.0),
    Entry("disk-throughput", 14.0, fixed_s=20.0),
    Entry("disk-restart", 17.0, fixed_s=0.0),
    Entry("prediction", 0.05, fixed_s=2.0, between_s=0.0, runs_at_least=100),
    Entry("planner", 0.1, fixed_s=5.0, between_s=0.0, runs_at_least=30),
    Entry("position-reports", 11.0, ours_times=2, fixed_s=60.0),
    # Two sizes on a fresh test bed: ours at its first and second start, and with hints.
    Entry("unconfigured", 90.0, 125.0, _MOST, fixed_s=0.0, between_s=0.0),
    Entry("mmwave", 63.0, 65.0, _MOST, added=1),
    Entry("bursts", 68.0, 130.0, _MOST, added=1),
)


def chosen(names: Iterable[str], scale: float = 1.0) -> tuple[Entry, ...]:
    """Return the entries of these experiments, with `scale` of their runs.

    The longest comes first, so that shorter ones fill the gaps.
    """
    wanted = set(names)
    entries = [
        dataclasses.replace(entry, scale=scale) for entry in CAMPAIGN if entry.name in wanted
    ]
    return tuple(sorted(entries, key=lambda entry: -entry.expected_s))


def startable(
    pending: Sequence[Entry], running: Iterable[Entry], left_s: float | None, idle: float = 1.0
) -> Entry | None:
    """Return the experiment to start next: the first that the machine has room for.

    With `left_s`, the time until a portion's end, only one that is expected to be done by then.
    `idle` is the part of the processors that is idle beside the running experiments.
    """
    free = min(idle, 1.0 - sum(entry.share for entry in running))
    for entry in pending:
        if entry.share <= free + 1e-9 and (left_s is None or entry.expected_s <= left_s):
            return entry
    return None


def duration_s(pending: Sequence[Entry], running: Sequence[tuple[Entry, float]] = ()) -> float:
    """Return how long these take in their order of start; `running` have the given times left."""
    now, waiting = 0.0, list(pending)
    ends = [(max(0.0, left_s), entry) for entry, left_s in running]
    while waiting or ends:
        while (entry := startable(waiting, [one for _, one in ends], None)) is not None:
            waiting.remove(entry)
            ends.append((now + entry.expected_s, entry))
        first = min(ends, key=lambda end: end[0])
        ends.remove(first)
        now = first[0]
    return now
