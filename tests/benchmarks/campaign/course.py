"""A campaign's course: experiments as processes, in portions that can be interrupted."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.benchmarks.bench import say
from tests.benchmarks.campaign.manifest import (
    CampaignError,
    Manifest,
    check_unchanged,
    load_manifest,
    now,
)
from tests.benchmarks.campaign.plan import Entry, duration_s, startable
from tests.benchmarks.processors import Processors
from tests.benchmarks.records import load

_LOOK_S = 0.5
_TELL_S = 60.0
# How long the processors are watched at a time, and what was started, before the next start.
_WATCH_S = 30.0
# Processors that are less idle than this are saturated: experiments wait for each other.
_SATURATED = 0.05
# An experiment that met saturation for more of its time is measured again, alone.
_SATURATED_AT_MOST = 0.1
# After SIGTERM an experiment takes its test bed down.
_END_S = 60.0


class Child(Protocol):
    """A running experiment."""

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""

    def kill(self) -> None:
        """End it."""


Launch = Callable[[Entry], Child]
# Starts to watch the processors; the function that it returns gives the idle part of the time
# since then.
Watch = Callable[[], Callable[[], float]]


@dataclasses.dataclass
class _Running:
    entry: Entry
    child: Child
    began: float
    # How often the processors were watched meanwhile, and found saturated with others running.
    watched: int = 0
    saturated: int = 0

    def waited_for_others(self) -> bool:
        return self.saturated > _SATURATED_AT_MOST * self.watched


def begun_or_resumed(folder: Path, fresh: Manifest, *, anew: bool) -> Manifest:
    """Return the manifest of the campaign in a folder, or begin one there.

    A campaign that was begun with anything else is not continued.
    """
    if anew:
        shutil.rmtree(folder, ignore_errors=True)
    begun = load_manifest(folder)
    if begun is None:
        fresh.save(folder)
        return fresh
    if different := begun.differences(fresh):
        raise CampaignError(
            f"the campaign {begun.id} in {folder} was begun otherwise: {'; '.join(different)}.\n"
            "Go back to that, or begin a new one with --anew."
        )
    return begun


def is_there(volume: Path, fresh: Manifest) -> bool:
    """Tell whether a volume has the results of a complete campaign that began like this one."""
    there = load_manifest(volume)
    return there is not None and there.ended is not None and not there.differences(fresh)


def done(folder: Path, manifest: Manifest) -> set[str]:
    """Return the experiments that have results; refuse results of another campaign."""
    found = set()
    for name in manifest.experiments:
        path = folder / f"{name}.json"
        if path.exists():
            result, _ = load(path)
            if result.campaign != manifest.id:
                raise CampaignError(f"{path} is of campaign {result.campaign}, not {manifest.id}")
            found.add(name)
    return found


class Course:
    """One portion of a campaign."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        entries: Sequence[Entry],
        launch: Launch,
        *,
        portion_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        watch: Watch = lambda: Processors().idle,
    ) -> None:
        there = done(folder, manifest)
        self.pending = [entry for entry in entries if entry.name not in there]
        self.failed: list[str] = []
        self._entries, self._folder, self._manifest = entries, folder, manifest
        self._launch, self._clock, self._sleep = launch, clock, sleep
        self._running: dict[str, _Running] = {}
        self._began = self._watching_since = clock()
        self._watch, self._watched = watch, watch()
        # Unknown right after a start.
        self._idle: float | None = None
        self._portion_s = portion_s
        self._started = self._stopping = False

    def stop(self) -> None:
        """Interrupt the portion: running experiments are measured again in the next one."""
        self._stopping = True

    def remaining_s(self) -> float:
        """Return how long the rest takes, from the experiments' known durations."""
        passed = [
            (one.entry, one.entry.expected_s - (self._clock() - one.began))
            for one in self._running.values()
        ]
        return duration_s(self.pending, passed)

    def run(self) -> None:
        """Run experiments until all are done, or the portion is over or interrupted."""
        portion = {"began": now(), "ended": ""}
        self._manifest.portions.append(portion)
        self._tell()
        told = self._clock()
        try:
            while not self._stopping and (self._start() or self._running):
                self._sleep(_LOOK_S)
                self._look_at_processors()
                if self._reap() or self._clock() - told >= _TELL_S:
                    self._tell()
                    told = self._clock()
        finally:
            self._end_all()
            portion["ended"] = now()
            if not self.pending and not self.failed:
                self._manifest.ended = now()
            self._manifest.save(self._folder)

    def _start(self) -> bool:
        """Start all that there is room and time for; return whether anything was started."""
        started = False
        while (entry := self._next()) is not None:
            child = self._launch(entry)
            self.pending.remove(entry)
            say(f"begins: {entry.name}, some {_duration(entry.expected_s)}")
            self._running[entry.name] = _Running(entry, child, self._clock())
            started = self._started = True
            self._watch_anew()
            self._idle = None
        return started

    def _look_at_processors(self) -> None:
        """Note whether the running experiments had to wait for a processor."""
        if self._clock() - self._watching_since < _WATCH_S:
            return
        self._idle = self._watched()
        saturated = self._idle < _SATURATED and len(self._running) > 1
        for one in self._running.values():
            one.watched += 1
            one.saturated += saturated
        self._watch_anew()

    def _watch_anew(self) -> None:
        self._watched, self._watching_since = self._watch(), self._clock()

    def _next(self) -> Entry | None:
        running = [one.entry for one in self._running.values()]
        if running and self._idle is None:
            return None
        idle = self._idle if running and self._idle is not None else 1.0
        left_s = None
        if self._portion_s is not None:
            left_s = self._portion_s - (self._clock() - self._began)
        entry = startable(self.pending, running, left_s, idle)
        if entry is None and not self._started:
            # Even a very short portion does at least one experiment.
            entry = startable(self.pending, running, None)
        return entry

    def _reap(self) -> bool:
        """Handle the experiments that have ended; return whether there were any."""
        ended = [name for name, one in self._running.items() if one.child.poll() is not None]
        for name in ended:
            one = self._running.pop(name)
            took = _duration(self._clock() - one.began)
            saved = self._folder / f"{name}.json"
            if one.child.poll() == 0 and saved.exists():
                if one.waited_for_others():
                    saved.unlink()
                    self.pending.append(dataclasses.replace(one.entry, share=1.0))
                    say(f"waited for others: {name}, {took}; it is measured again, alone")
                else:
                    say(f"done: {name}, {took}")
            else:
                self.failed.append(name)
                say(f"FAILED: {name} after {took}, see {self._folder / 'logs' / name}.log")
        return bool(ended)

    def _tell(self) -> None:
        ready = len(self._entries) - len(self.pending) - len(self._running) - len(self.failed)
        end = time.strftime("%H:%M", time.localtime(time.time() + self.remaining_s()))
        say(
            f"campaign {self._manifest.id}: {ready} of {len(self._entries)} done"
            + (f", running {', '.join(self._running)}" if self._running else "")
            + (f", failed {', '.join(self.failed)}" if self.failed else "")
            + f"; some {_duration(self.remaining_s())} left without a break, until {end}"
        )

    def _end_all(self) -> None:
        for one in self._running.values():
            one.child.terminate()
        for name, one in self._running.items():
            try:
                one.child.wait(_END_S)
            except subprocess.TimeoutExpired:
                one.child.kill()
                one.child.wait()
            self.pending.append(one.entry)
            say(f"broken off: {name}")
        self._running.clear()


def launcher(folder: Path, manifest: Manifest, idle_s: float) -> Launch:
    """Return a function that starts an experiment as a process, which ends with this one.

    It refuses to start once the tree or the programs have changed since the campaign began.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)

    def launch(entry: Entry) -> Child:
        check_unchanged(manifest)
        options = [
            *("--subjects", *entry.subjects, "--runs", str(entry.runs)),
            *("--peer-runs", str(entry.peer_runs), "--idle-s", str(idle_s)),
            *("--seed", str(manifest.seed), "--into", str(folder), "--campaign", manifest.id),
        ]
        return started(entry.name, options, logs / f"{entry.name}.log")

    return launch


def started(
    experiment: str, options: Sequence[str], log: Path, programs: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start an experiment by itself as a process, which ends with this one; append to its log.

    `programs` is the folder of the measured programs, if they are not this process's own.
    """
    argv = [
        *("setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "tests.benchmarks"),
        *("run", experiment, *options),
    ]
    env = {**os.environ, "UNDERPASS_BIN": str(programs)} if programs else None
    with log.open("ab") as file:
        # Ctrl-C is for this process, which then ends its experiments in order.
        return subprocess.Popen(argv, stdout=file, stderr=file, env=env, process_group=0)


def replace_volume(folder: Path, results: Path, aside: Path) -> None:
    """Replace a volume by a complete campaign; nothing of the old volume remains.

    `folder` has the volume's name. Results of the same experiments from before there were campaigns
    are removed too. The old volume and the campaign's logs are put aside, until the next time.
    """
    volume = results / folder.name
    for source, name in (
        (folder / "logs", f"{folder.name}-logs"),
        (volume, f"{folder.name}-before"),
    ):
        shutil.rmtree(aside / name, ignore_errors=True)
        if source.exists():
            shutil.move(source, aside / name)
    for path in folder.glob("*.json"):
        (results / path.name).unlink(missing_ok=True)
    shutil.move(folder, volume)


@contextmanager
def broken_off_by_signals(course: Course) -> Iterator[None]:
    """Have SIGINT and SIGTERM interrupt a course, so that it can be resumed."""
    names = (signal.SIGINT, signal.SIGTERM)
    before = {name: signal.signal(name, lambda *_: course.stop()) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
