"""The course of an experiment: idle, runs in turn with the same seeds, censoring, draining."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tests.benchmarks import subjects
from tests.benchmarks.records import Result
from tests.benchmarks.subjects import Access, Subject, Unavailable
from tests.benchmarks.subjects.underpass import SecondStart, Underpass
from tests.testbed.node import Told
from tests.testbed.process import ProcessError
from tests.testbed.profile import Profile
from tests.testbed.satlink import Satlink
from tests.testbed.topology import Testbed

# A hop counts as drained once it carries less than this for a round trip: keepalives continue.
_QUIET_BYTES_PER_S = 20_000
_QUIET_LEAST_S = 0.5
_DRAIN_LIMIT_S = 180.0
_CENSOR_FACTOR = 10
# A socket's initial receive buffer limits how fast a download can start, so the default is raised
# with the maximum, for every subject, client and origin alike. Send buffers follow the congestion
# window by themselves.
WIDE_WINDOWS = {"net.ipv4.tcp_rmem": "4096 33554432 134217728"}
OURS = "underpass"
# The payload's part of a packet of 1500 bytes, after TCP/IP headers with timestamps.
HEADERS_LEAVE = 1448 / 1500


class Run(Protocol):
    """The result of one run: at least when it ended."""

    @property
    def last_byte_s(self) -> float | None:
        """Return the time to its last byte, None if it was censored."""


R = TypeVar("R", bound=Run)


@dataclass(frozen=True)
class Settings:
    """The command line's settings for all experiments."""

    subjects: Sequence[str] = field(default_factory=lambda: list(subjects.NAMES))
    # None: each experiment's own number.
    runs: int | None = None
    # The most runs of subjects other than `underpass`.
    peer_runs: int | None = None
    idle_s: float = 60.0
    seed: int = 1
    # The most that a run may take before our first run has ended, and after that.
    cap_s: float = 120.0
    most_s: float = 180.0

    def runs_of(self, subject: str, default: int) -> int:
        """Return how many runs a subject has; the experiment's own number is `default`."""
        runs = self.runs or default
        if subject != OURS and self.peer_runs:
            runs = min(runs, self.peer_runs)
        return runs


@dataclass(frozen=True)
class Series(Generic[R]):
    """Runs of one subject: `one(access, seed, deadline_s)` is one of them.

    `prepare` is called before each, for series that share a subject and differ in its state.
    """

    subject: Subject
    one: Callable[[Access, int, float], R]
    prepare: Callable[[], None] | None = None


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


class Bench:
    """A test bed with all subjects up, on which series are run one after another."""

    def __init__(self, testbed: Testbed, settings: Settings) -> None:
        self.testbed = testbed
        self.settings = settings
        self.subjects: list[Subject] = []
        self.left_out: dict[str, str] = {}
        # By subject: after how many of its runs the hop did not fall quiet.
        self.undrained: Counter[str] = Counter()
        self._idle_since: dict[str, float] = {}
        self._limit_s: float | None = None

    def start(self, names: Sequence[str]) -> None:
        """Start the subjects; those that this machine cannot run are left out, with the reason."""
        for name in names:
            self.add(subjects.subject(name))

    def start_untold(self, told: Told = "nothing", *, unprivileged: bool = False) -> None:
        """Start the subjects of the settings; ours is told less than the hop's rates.

        Ours is added a second time, for its second start.
        """
        for name in self.settings.subjects:
            if name == OURS:
                self.add(Underpass(name, None, told=told, unprivileged=unprivileged))
                self.add(SecondStart(told, unprivileged=unprivileged))
            else:
                self.add(subjects.subject(name))

    def add(self, subject: Subject) -> None:
        """Start one subject."""
        try:
            subject.start(self.testbed)
        except (Unavailable, ProcessError) as error:
            self.left_out[subject.name] = str(error)
            say(f"{subject.name} is left out: {error}")
            return
        self.add_started(subject)

    def add_started(self, subject: Subject) -> None:
        """Add a subject that runs already; its idle time starts now."""
        self.subjects.append(subject)
        self._idle_since[subject.name] = time.monotonic()

    def in_turn(
        self, series: Sequence[Series[R]], default: int, *, idle_before_each: bool = False
    ) -> list[list[R]]:
        """Run all series in rounds, each subject once in a round.

        So all meet the same hours and the same seeds: round n has seed n. The runs of a shorter
        series are spread evenly over the rounds. Each subject is idle for `idle_s` of the settings
        before its first run, with `idle_before_each` before every run, else for as long as the
        others' runs take. Later runs may take ten times as long as our first one.
        """
        wanted = [self.settings.runs_of(each.subject.name, default) for each in series]
        rounds = max(wanted, default=0)
        results: list[list[R]] = [[] for _ in series]
        for number in range(rounds):
            for place, each in enumerate(series):
                if number not in spread(wanted[place], rounds):
                    continue
                idle = idle_before_each or not results[place]
                results[place].append(self._one(each, self.settings.seed + number, idle=idle))
        return results

    def _one(self, series: Series[R], seed: int, *, idle: bool) -> R:
        subject = series.subject
        if series.prepare:
            series.prepare()
        subject.before_run()
        if idle:
            self.rest(subject)
        for hop in self._hops():
            hop.seed(seed)
        result = series.one(subject.access(), seed, self.deadline_s())
        if not self.drain():
            self.undrained[subject.name] += 1
            say(f"{subject.name}: the hop is not quiet {_DRAIN_LIMIT_S:.0f} s behind a run")
        self.rested_from_now(subject)
        subject.after_run()
        if subject.name == OURS and self._limit_s is None and result.last_byte_s is not None:
            self._limit_s = min(_CENSOR_FACTOR * result.last_byte_s, self.settings.most_s)
        return result

    def deadline_s(self) -> float:
        """Return how long a run may take."""
        return self._limit_s or self.settings.cap_s

    def drain(self) -> bool:
        """Wait until the hop is quiet, so that a run does not meet traffic of the one before.

        Return False if a subject goes on sending beyond the limit.
        """
        deadline = time.monotonic() + _DRAIN_LIMIT_S
        step = max(_QUIET_LEAST_S, self.testbed.profile.rtt_s)
        before = self._hop_bytes()
        while time.monotonic() < deadline:
            time.sleep(step)
            now = self._hop_bytes()
            if now - before < _QUIET_BYTES_PER_S * step:
                return True
            before = now
        return False

    def sent_bytes(self, direction: str) -> int:
        """Return the IP bytes that the hop has carried one way since the counts were reset."""
        links = self.testbed.satlink.statistics()["terminals"].values()
        return sum(link[direction]["bytes_sent"] for link in links)

    def overhead_percent(self, direction: str, payload_bytes: int) -> float:
        """Return the hop's bytes beyond the payload in full TCP/IP packets, in percent of those."""
        least = payload_bytes / HEADERS_LEAVE
        return 100 * (self.sent_bytes(direction) - least) / least if least else 0.0

    def way_back_percent(self, direction: str, payload_bytes: int) -> float:
        """Return the hop's bytes against the payload's direction, in percent of the payload."""
        return 100 * self.sent_bytes(direction) / payload_bytes if payload_bytes else 0.0

    def describe(self, result: Result) -> None:
        """Add `notes` and `told` to a result."""
        result.notes |= self.notes()
        result.told |= self.told()

    def told(self) -> dict[str, str]:
        """Return what each subject was told of the hop, and its state before a run."""
        return {subject.name: subject.told for subject in self.subjects}

    def notes(self) -> dict[str, object]:
        """Return what a reader must know: which subjects are missing, and satlink's own errors."""
        keys = ("unread_packets", "late_packets", "lateness_max_ns")
        of_hops = [hop.statistics() for hop in self._hops()]
        truth = [[stats[key] for key in keys] for stats in of_hops]
        noted: dict[str, object] = {"left out": self.left_out}
        if self.undrained:
            noted["runs behind which the hop did not fall quiet"] = dict(self.undrained)
        return noted | {
            "satlink at the end (packets unread, over 1 ms late; most ns late)": truth[0],
            **({"the same of the terrestrial hop": truth[1]} if len(truth) > 1 else {}),
        }

    def _hops(self) -> list[Satlink]:
        beside = self.testbed.terrestrial
        return [self.testbed.satlink, *([beside] if beside else [])]

    def _hop_bytes(self) -> int:
        links = [link for hop in self._hops() for link in hop.statistics()["terminals"].values()]
        return sum(
            link[direction]["bytes_in"] + link[direction]["queue_bytes"]
            for link in links
            for direction in ("forward", "return")
        )

    def rest(self, subject: Subject) -> None:
        """Wait until a subject has been idle for `idle_s` of the settings."""
        left = self._idle_since[subject.name] + self.settings.idle_s - time.monotonic()
        if left > 0:
            say(f"{subject.name}: idle for {left:.0f} s")
            time.sleep(left)

    def rested_from_now(self, subject: Subject) -> None:
        """Start a subject's idle time: it has just been used."""
        self._idle_since[subject.name] = time.monotonic()


@contextmanager
def bench(profile: Profile, settings: Settings) -> Iterator[Bench]:
    """Build a test bed for a profile with all subjects of the settings up."""
    with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        bench = Bench(testbed, settings)
        bench.start(settings.subjects)
        yield bench


def spread(count: int, rounds: int) -> set[int]:
    """Return the rounds, from 0, in which a series has its runs: spread evenly from the first."""
    return {place * rounds // count for place in range(min(count, rounds))} if count else set()
