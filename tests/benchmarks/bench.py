"""The course of a series: warm up, idle, runs with the same seeds, censoring, draining."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.benchmarks import subjects
from tests.benchmarks.subjects import Access, Subject, Unavailable
from tests.testbed.process import ProcessError
from tests.testbed.profile import Profile
from tests.testbed.topology import Testbed

# A hop counts as drained once it carries less than this; keepalives go on.
_QUIET_BYTES_PER_S = 20_000
_DRAIN_LIMIT_S = 90.0
_CENSOR_FACTOR = 10
# TCP/IP headers with timestamps leave this part of a packet of 1500 bytes.
HEADERS_LEAVE = 1448 / 1500


class Run(Protocol):
    """What one run gives: at least when it ended."""

    @property
    def last_byte_s(self) -> float | None:
        """Return the time to its last byte, None if it was censored."""


R = TypeVar("R", bound=Run)


@dataclass(frozen=True)
class Settings:
    """What the command line says of all experiments."""

    subjects: Sequence[str] = field(default_factory=lambda: list(subjects.NAMES))
    # None: as each experiment has it.
    runs: int | None = None
    # At most so many for the subjects that are not our own.
    peer_runs: int | None = None
    idle_s: float = 60.0
    seed: int = 1
    # How long a run may take while our own median is not known.
    cap_s: float = 120.0


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
        self._idle_since: dict[str, float] = {}
        self._limit_s: float | None = None

    def start(self, names: Sequence[str]) -> None:
        """Start the subjects; those that this machine cannot run are left out, with the reason."""
        for name in names:
            self.add(subjects.subject(name))

    def add(self, subject: Subject) -> None:
        """Start one subject."""
        try:
            subject.start(self.testbed)
        except (Unavailable, ProcessError) as error:
            self.left_out[subject.name] = str(error)
            say(f"{subject.name} is left out: {error}")
            return
        self.subjects.append(subject)
        self._idle_since[subject.name] = time.monotonic()

    def runs(self, default: int) -> int:
        """Return how many runs a series has."""
        return self.settings.runs or default

    def series(
        self,
        subject: Subject,
        runs: int,
        one: Callable[[Access, int, float], R],
        *,
        idle_before_each: bool = False,
    ) -> list[R]:
        """Run `one(access, seed, deadline_s)` so many times after an idle time.

        The first subject's median bounds the later ones' runs at ten times of it.
        """
        if subject.name != "underpass" and self.settings.peer_runs:
            runs = min(runs, self.settings.peer_runs)
        subject.before_series()
        # The first connection may find caches, ARP and code cold: it is no part of the series.
        self.rest(subject)
        results: list[R] = []
        for number in range(runs):
            if idle_before_each and number:
                self.rest(subject)
            self.testbed.satlink.seed(self.settings.seed + number)
            results.append(one(subject.access(), self.settings.seed + number, self.deadline_s()))
            self.drain()
            self.rested_from_now(subject)
        subject.after_series()
        if subject.name == "underpass":
            done = [result.last_byte_s for result in results if result.last_byte_s is not None]
            if done:
                self._limit_s = _CENSOR_FACTOR * statistics.median(done)
        return results

    def deadline_s(self) -> float:
        """Return how long a run may take."""
        return self._limit_s or self.settings.cap_s

    def drain(self) -> None:
        """Wait until the hop is quiet, so that a run does not meet the one before."""
        deadline = time.monotonic() + _DRAIN_LIMIT_S
        step = max(0.25, self.testbed.profile.rtt_s / 2)
        before = self._hop_bytes()
        while time.monotonic() < deadline:
            time.sleep(step)
            now = self._hop_bytes()
            if now - before < _QUIET_BYTES_PER_S * step:
                return
            before = now

    def sent_bytes(self, direction: str) -> int:
        """Return the IP bytes that the hop has carried one way since the counts were reset."""
        links = self.testbed.satlink.statistics()["terminals"].values()
        return sum(link[direction]["bytes_sent"] for link in links)

    def overhead_percent(self, direction: str, payload_bytes: int) -> float:
        """Return what the hop carried beyond payload in full TCP/IP packets, in percent of it."""
        least = payload_bytes / HEADERS_LEAVE
        return 100 * (self.sent_bytes(direction) - least) / least if least else 0.0

    def notes(self) -> dict[str, object]:
        """Return what a reader has to know: who is missing, and how true satlink was."""
        stats = self.testbed.satlink.statistics()
        truth = {key: stats[key] for key in ("unread_packets", "late_packets", "lateness_max_ns")}
        return {
            "left out": self.left_out,
            "satlink at the end (packets unread, over 1 ms late; most ns late)": list(
                truth.values()
            ),
        }

    def _hop_bytes(self) -> int:
        links = self.testbed.satlink.statistics()["terminals"].values()
        return sum(
            link[direction]["bytes_in"] + link[direction]["queue_bytes"]
            for link in links
            for direction in ("forward", "return")
        )

    def rest(self, subject: Subject) -> None:
        """Wait until a subject has been idle for the time that the settings say."""
        left = self._idle_since[subject.name] + self.settings.idle_s - time.monotonic()
        if left > 0:
            say(f"{subject.name}: idle for {left:.0f} s")
            time.sleep(left)

    def rested_from_now(self, subject: Subject) -> None:
        """Note that a subject has just been used, so that its idle time begins."""
        self._idle_since[subject.name] = time.monotonic()


@contextmanager
def bench(profile: Profile, settings: Settings, *, terminals: int = 1) -> Iterator[Bench]:
    """Build a test bed for a profile with all subjects of the settings up."""
    with Testbed(profile, terminals=terminals, seed=settings.seed) as testbed:
        bench = Bench(testbed, settings)
        bench.start(settings.subjects)
        yield bench
