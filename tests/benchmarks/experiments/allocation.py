"""The paper's experiment, live: sessions share a beam of 8 Mbit/s, and one of them is in a road
tunnel for a fifth of the time (Oh, Kim and Kim, *Adaptive Borrow-Repay Resource Allocation*)."""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from dama.formulas import jain_index
from tests.benchmarks import subjects
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.experiments.flows import run_flows, run_uploads
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.subject import COLD
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.client.transfer import Transfer
from tests.testbed.control import REPORTS, Control
from tests.testbed.node import Options, Pair
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.topology import Testbed

_SECONDS = 300
_RECOGNISED_S, _ENTRY_S, _INSIDE_S = 60, 180, 60
_SESSIONS = (2, 4, 8)
# As in the paper: with so many sessions, each one's amount is recorded; else only the fairness.
_SHOWN = 4
# Each keeps two cores busy for a small part of the time.
_AT_ONCE = 6

Condition = Literal["clear", "blocked", "lent"]


@dataclass(frozen=True)
class Case:
    """One run: subject, number of sessions, direction, and what happens to the first session.

    `clear`: no blockage; `blocked`: a blockage that nobody plans for; `lent`: one that the control
    service knows of and lends for.
    """

    subject: str
    condition: Condition
    sessions: int
    direction: Literal["down", "up"]

    def __str__(self) -> str:
        """Return it for a person to read."""
        return f"{self.subject}, {self.condition}, {self.sessions} sessions {self.direction}"


@dataclass(frozen=True)
class Course:
    """The bytes that each session got in each second; session A comes first."""

    bytes: list[list[int]]

    @property
    def mbit(self) -> list[float]:
        """Return each session's total."""
        return [sum(course) * 8 / 1e6 for course in self.bytes]

    @property
    def jain(self) -> float:
        """Return Jain's index of the totals."""
        return float(jain_index([sum(course) for course in self.bytes]))

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """Return each session's throughput over time, Mbit/s over s."""
        return {
            name: [(second + 1.0, count * 8 / 1e6) for second, count in enumerate(course)]
            for name, course in zip(string.ascii_uppercase, self.bytes, strict=False)
        }


def run(settings: Settings) -> Result:
    """Run every case, six at once; these share nothing but the machine."""
    result = Result("allocation")
    chosen = [case for case in _cases() if case.subject in settings.subjects]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        done = {
            case: [
                pool.submit(_course, case, settings.seed + number)
                for number in range(settings.runs_of(case.subject, 1))
            ]
            for case in chosen
        }
        for case, runs in done.items():
            _report(result, case, [run.result() for run in runs])
    result.told = {
        "underpass": f"{TOLD_PAIR}; the service of each blockage where it lends",
        "single-box": COLD,
    }
    result.notes["measured"] = (
        f"bytes at the client (uploads: at the origin) in {_SECONDS} s, {_AT_ONCE} runs at once; A "
        f"is blocked from {_ENTRY_S} to {_ENTRY_S + _INSIDE_S} s, and where the control service "
        f"lends, the terminal announces it at {_RECOGNISED_S} s"
    )
    return result


def _cases() -> Iterator[Case]:
    conditions: dict[str, Sequence[Condition]] = {
        "underpass": ("clear", "blocked", "lent"),
        "single-box": ("clear", "blocked"),
    }
    for subject, known in conditions.items():
        for condition in known:
            yield from (Case(subject, condition, count, "down") for count in _SESSIONS)
            yield Case(subject, condition, _SHOWN, "up")


def _report(result: Result, case: Case, courses: Sequence[Course]) -> None:
    name = f"allocation-{case.direction}.{case.condition}"
    jain = [course.jain for course in courses]
    result.records.append(record(f"{name}.jain-{case.sessions}", case.subject, jain))
    text = ", ".join(f"{mbit:.1f}" for mbit in courses[0].mbit)
    result.notes[f"{case}: Mbit, A first"] = text
    say(f"{case}: {text} Mbit; Jain {jain[0]:.5f}")
    if case.sessions != _SHOWN:
        return
    first = [course.mbit[0] for course in courses]
    others = [min(course.mbit[1:]) for course in courses]
    result.records.append(record(f"{name}.a", case.subject, first))
    result.records.append(record(f"{name}.others", case.subject, others))
    title = f"{case.direction}, {case.condition}, {case.subject}: Mbit/s over s"
    result.curves[title] = courses[0].curves()


def _course(case: Case, seed: int) -> Course:
    say(f"{case}: begins")
    with Testbed(PAPER_BEAM, terminals=case.sessions, shared=True, seed=seed) as testbed:
        accesses, recognise = _ways(case, testbed)
        if case.condition != "clear":
            first, entry = testbed.terminal.name, time.monotonic() + _ENTRY_S
            testbed.satlink.schedule(first, [(entry, _INSIDE_S)])
        with ThreadPoolExecutor(1) as beside:
            recognised = beside.submit(_at, _RECOGNISED_S, recognise)
            if case.direction == "down":
                flows = run_flows(accesses, _SECONDS, seed)
            else:
                flows = run_uploads(accesses, testbed.origin, _SECONDS, seed)
            recognised.result()
        return Course([_per_second(flow) for flow in flows])


def _at(seconds: float, then: Callable[[], None]) -> None:
    time.sleep(seconds)
    then()


def _per_second(flow: Transfer) -> list[int]:
    totals, place, until = [0], 0, 0
    for second in range(1, _SECONDS + 1):
        while place < len(flow.curve) and flow.curve[place][0] <= second:
            until = flow.curve[place][1]
            place += 1
        totals.append(until)
    return [after - before for before, after in pairwise(totals)]


def _ways(case: Case, testbed: Testbed) -> tuple[list[Access], Callable[[], None]]:
    """Start the case's subject; return each session's way to the origin, and a function by which
    A announces the road tunnel to the control service."""
    if case.subject == "single-box":
        return _single_box(testbed), _keep_to_oneself
    control = None
    if case.condition == "lent":
        control = Control(testbed)
        control.register()
    pair = Pair(testbed, _options(case.sessions, control))
    accesses = [
        Access(terminal.client, pair.http_forward(place), addresses.ORIGIN, ports.HTTP)
        for place, terminal in enumerate(testbed.terminals)
    ]
    return accesses, partial(_announce, pair) if control else _keep_to_oneself


def _single_box(testbed: Testbed) -> list[Access]:
    box = subjects.subject("single-box")
    box.start(testbed)
    box.before_run()
    for terminal in testbed.terminals:
        # In uploads the clients send into the hop.
        terminal.client.set_congestion_control("cubic")
    return [
        Access(terminal.client, DIRECT, addresses.ORIGIN, ports.HTTP)
        for terminal in testbed.terminals
    ]


def _options(sessions: int, control: Control | None) -> Options:
    """The hub shares the beam; without a plan, each terminal keeps to its equal part."""
    beam = PAPER_BEAM.forward.rate_bps
    assert beam is not None
    return Options(
        return_rate_bps=beam // sessions,
        terminal=REPORTS if control else {},
        hub=control.hub_config if control else {"beam": {"rate_bps": beam}},
    )


def _announce(pair: Pair[Testbed]) -> None:
    ahead = _ENTRY_S - _RECOGNISED_S
    pair.terminal.api.announce(in_s=ahead, duration_s=_INSIDE_S, confidence=1.0)


def _keep_to_oneself() -> None:
    pass
