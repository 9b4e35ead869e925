"""Nodes that know nothing of their hop: the very first start, and the second."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.benchmarks import subjects
from tests.benchmarks.bench import (
    HEADERS_LEAVE,
    OURS,
    WIDE_WINDOWS,
    Bench,
    Settings,
    say,
    spread,
)
from tests.benchmarks.records import Result, part_of, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import PROFILE_G
from tests.testbed.topology import Testbed

_SIZES = {"8mb": 8_000_000, "200mb": 200_000_000}
_DEADLINE_S = 180.0
_RUNS = 5


@dataclass
class _Starts:
    """By start and size: the downloads in their order, with their times to the end, s."""

    downloads: dict[tuple[str, str], list[tuple[Transfer, float]]] = field(default_factory=dict)

    def measure(self, start: str, on: Bench, access: Access, seed: int) -> None:
        """Download the smaller object, then the larger one, each on a quiet hop."""
        for size, count in _SIZES.items():
            done = access.download(count, seed, _DEADLINE_S)
            took_s = _DEADLINE_S if done.last_byte_s is None else done.last_byte_s
            self.downloads.setdefault((start, size), []).append((done, took_s))
            say(f"unconfigured  {start}, {size}: {done.bytes / 1e6:.1f} MB in {took_s:.2f} s")
            on.drain()

    def goodputs_bps(self, start: str, size: str) -> list[float]:
        """Return the goodput of each download; of an incomplete one by its bytes until the end."""
        return [8 * done.bytes / took_s for done, took_s in self.downloads.get((start, size), [])]


def run(settings: Settings) -> Result:
    """Measure on a fresh test bed each run, so that only our own nodes know of the hop before.

    Subjects take turns. A subject that stores nothing has only a first start.
    """
    result = Result("unconfigured")
    wanted = {name: settings.runs_of(name, _RUNS) for name in settings.subjects}
    rounds = max(wanted.values(), default=0)
    starts = {name: _Starts() for name in wanted}
    for number in range(rounds):
        seed = settings.seed + number
        for name, of in starts.items():
            if number not in spread(wanted[name], rounds):
                continue
            _one(result, of, "first", seed, settings, _subject(name))
            if name == OURS:
                _one(result, of, "told", seed, settings, Underpass(name, None))
    for name, of in starts.items():
        _report(result, name, of)
    return result


def _subject(name: str) -> Subject:
    return Underpass(name, None, told="nothing") if name == OURS else subjects.subject(name)


def _one(
    result: Result, starts: _Starts, start: str, seed: int, settings: Settings, subject: Subject
) -> None:
    with Testbed(PROFILE_G, sysctls=WIDE_WINDOWS, seed=seed) as testbed:
        on = Bench(testbed, settings)
        on.add(subject)
        if on.left_out:
            result.notes["left out"] = {**_dict(result.notes.get("left out")), **on.left_out}
            return
        subject.before_run()
        say(f"unconfigured  {subject.name}, {start} start")
        starts.measure(start, on, subject.access(), seed)
        if start == "first" and isinstance(subject, Underpass):
            subject.pair.stop()
            subject.pair.start_again()
            starts.measure("second", on, subject.access(), seed)
        before = result.told.get(subject.name)
        if before is None:
            result.told[subject.name] = subject.told
        elif start == "told" and "; told: " not in before:
            result.told[subject.name] = f"{before}; told: {subject.told}"
        result.notes |= {f"{subject.name}: {key}": note for key, note in on.notes().items()}


def _dict(note: object) -> dict[str, object]:
    return note if isinstance(note, dict) else {}


def _report(result: Result, name: str, starts: _Starts) -> None:
    rate_bps = PROFILE_G.forward.rate_bps
    assert rate_bps is not None
    for (start, size), downloads in starts.downloads.items():
        goodputs = starts.goodputs_bps(start, size)
        values = (
            [took_s for _, took_s in downloads]
            if size == "8mb"
            else [100 * one / (rate_bps * HEADERS_LEAVE) for one in goodputs]
        )
        cut = [done.bytes for done, _ in downloads if not done.complete]
        made = record(f"unconfigured.{start}.{size}", name, values, censored_bytes=cut)
        say(f"{made.id}  {name}: {made.median:.4g} {made.unit}")
        result.records.append(made)
        told = starts.goodputs_bps("told", size)
        if start == "second" and told:
            parts = [100 * part_of(one, other) for one, other in zip(goodputs, told, strict=False)]
            result.records.append(record(f"unconfigured.second-to-told.{size}", name, parts))
