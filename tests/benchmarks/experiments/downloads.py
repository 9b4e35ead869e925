"""What the experiments with downloads of one object share: a series per subject, and its curves."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.bench import Bench, say
from tests.benchmarks.records import Record, record
from tests.benchmarks.subjects import Access, Subject
from tests.testbed.client.transfer import Transfer, download


def download_series(
    bench: Bench, subject: Subject, size: int, runs: int, *, idle_before_each: bool = False
) -> list[Transfer]:
    """Download an object so many times by way of a subject."""

    def one(access: Access, seed: int, deadline_s: float) -> Transfer:
        return download_by(access, size, seed, deadline_s)

    transfers = bench.series(subject, runs, one, idle_before_each=idle_before_each)
    for transfer in transfers:
        if transfer.error and not transfer.error.startswith("TimeoutError"):
            say(f"{subject.name}: {transfer.error}")
    return transfers


def download_by(access: Access, size: int, seed: int, deadline_s: float) -> Transfer:
    """Download an object once by way of a subject."""
    return download(
        access.client,
        access.host,
        size,
        port=access.port,
        route=access.route,
        seed=seed,
        deadline_s=deadline_s,
    )


def seconds(bench: Bench, transfer: Transfer) -> float:
    """Return a run's time to its last byte, or that of its end if it was censored."""
    return bench.deadline_s() if transfer.last_byte_s is None else transfer.last_byte_s


def transfer_record(
    figure_id: str, subject: Subject, transfers: list[Transfer], value: Callable[[Transfer], float]
) -> Record:
    """Make a figure's record; runs that did not end are censored with their bytes."""
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
    """Return the curve, in MB over s, of the run whose end is the median one."""
    ordered = sorted(transfers, key=lambda run: (run.last_byte_s or float("inf"), -run.bytes))
    curve = ordered[len(ordered) // 2].curve
    step = max(1, len(curve) // 400)
    return [(round(at, 4), count / 1e6) for at, count in [*curve[::step], *curve[-1:]]]
