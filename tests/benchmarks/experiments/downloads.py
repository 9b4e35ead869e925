"""Shared by the experiments that download one object: a series per subject, and its curves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.benchmarks.bench import HEADERS_LEAVE, Bench, Series, say
from tests.benchmarks.records import Record, record
from tests.benchmarks.subjects import Access, Subject
from tests.testbed.client.transfer import Transfer


def download_series(
    bench: Bench, size: int, runs: int, *, idle_before_each: bool = False
) -> Iterator[tuple[Subject, list[Transfer]]]:
    """Download an object `runs` times through every subject; return each one's transfers."""

    def one(access: Access, seed: int, deadline_s: float) -> Transfer:
        return access.download(size, seed, deadline_s)

    series = [Series(subject, one) for subject in bench.subjects]
    done = bench.in_turn(series, runs, idle_before_each=idle_before_each)
    for each, transfers in zip(series, done, strict=True):
        for transfer in transfers:
            if transfer.error and not transfer.error.startswith("TimeoutError"):
                say(f"{each.subject.name}: {transfer.error}")
        yield each.subject, transfers


class Overheads:
    """Each subject's overhead on the hop: in the data's direction, and against it."""

    def __init__(self, bench: Bench, there: str, back: str) -> None:
        self._bench = bench
        self._there, self._back = there, back
        self._percent: dict[str, list[tuple[float, float]]] = {}

    def series(self, transfer: Callable[[Access, int, float], Transfer]) -> list[Series[Transfer]]:
        """Return a series of transfers for each subject, of which the overhead is noted.

        Bytes still in flight at a transfer's end count.
        """
        return [
            Series(subject, partial(self._one, subject.name, transfer))
            for subject in self._bench.subjects
        ]

    def _one(
        self,
        subject: str,
        transfer: Callable[[Access, int, float], Transfer],
        access: Access,
        seed: int,
        deadline_s: float,
    ) -> Transfer:
        self._bench.testbed.satlink.reset_statistics()
        done = transfer(access, seed, deadline_s)
        time.sleep(self._bench.testbed.profile.rtt_s)
        self._percent.setdefault(subject, []).append(
            (
                self._bench.overhead_percent(self._there, done.bytes),
                self._bench.way_back_percent(self._back, done.bytes),
            )
        )
        return done

    def records(self, subject: str, there: str, back: str) -> list[Record]:
        """Return a subject's records of the two figures."""
        values = self._percent[subject]
        return [
            record(there, subject, [percent for percent, _ in values]),
            record(back, subject, [percent for _, percent in values]),
        ]


def seconds(bench: Bench, transfer: Transfer) -> float:
    """Return a run's time to its last byte, or to its end if it was censored."""
    return bench.deadline_s() if transfer.last_byte_s is None else transfer.last_byte_s


def goodput_percent(bench: Bench, transfer: Transfer, rate_bps: float) -> float:
    """Return a run's goodput, until its end if it was censored, in % of what headers leave."""
    return 100 * 8 * transfer.bytes / seconds(bench, transfer) / (rate_bps * HEADERS_LEAVE)


def transfer_record(
    figure_id: str, subject: Subject, transfers: list[Transfer], value: Callable[[Transfer], float]
) -> Record:
    """Make a figure's record; runs that did not complete are censored, with their bytes."""
    made = record(
        figure_id,
        subject.name,
        [value(transfer) for transfer in transfers],
        censored_bytes=[transfer.bytes for transfer in transfers if not transfer.complete],
    )
    say(
        f"{made.id}  {made.subject}: median {made.median:.4g} {made.unit}, p90 {made.p90:.4g}"
        + (f", {made.censored} of {made.n} censored" if made.censored else "")
    )
    return made


def typical_curve(transfers: list[Transfer]) -> list[tuple[float, float]]:
    """Return the curve, in MB over s, of the run with the median end."""
    ordered = sorted(transfers, key=lambda run: (run.last_byte_s or float("inf"), -run.bytes))
    curve = ordered[len(ordered) // 2].curve
    step = max(1, len(curve) // 400)
    return [(round(at, 4), count / 1e6) for at, count in [*curve[::step], *curve[-1:]]]
