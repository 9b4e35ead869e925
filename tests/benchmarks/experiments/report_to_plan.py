"""From a report's arrival at the control service to the plan in force at the nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.control_api import postgresql
from tests.testbed.control import REPORTS, Control
from tests.testbed.following import Event, Follower
from tests.testbed.narration import ms
from tests.testbed.node import HUB_NODE, Options, Pair, terminal_node
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_RUNS = 50
_TERMINALS = 4
_KINDS = ("announcements", "plans", "acknowledgements")
_WITHIN_S = 10.0
# Until a withdrawn blockage has left the plan, so that the next one changes it again.
_BETWEEN_S = 4.0


class NoPlanError(RuntimeError):
    """No plan that all nodes concerned applied followed an announcement."""


@dataclass
class _Course:
    """The course of one announcement so far."""

    received_ms: int | None = None
    # By link, the plan that it led to: version and start.
    plans: dict[str, tuple[int, int]] = field(default_factory=dict)
    # By link, when the sending node applied that plan.
    applied: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take in an event of the service."""
        data = event.data
        if event.kind == "announcements":
            self.received_ms = ms(data["announcements"][-1]["received"])
        elif self.received_ms is None:
            return
        elif event.kind == "plans" and data["link"] not in self.plans:
            if ms(data["issued"]) >= self.received_ms:
                self.plans[data["link"]] = data["plan"], ms(data["start"])
        elif event.kind == "acknowledgements":
            link = data["link"]
            node = HUB_NODE if link == "forward" else terminal_node(0)
            if self.plans.get(link, (None,))[0] == data["plan"]:
                said = {one["node"]: ms(one["applied"]) for one in data["acknowledgements"]}
                if node in said:
                    self.applied[link] = said[node]

    @property
    def complete(self) -> bool:
        """Tell whether both ends have applied their plans."""
        return len(self.applied) == 2

    def after_ms(self, link: str) -> float:
        """Return the time until the plan was in force, that is applied and begun, ms."""
        assert self.received_ms is not None
        return max(self.applied[link], self.plans[link][1]) - self.received_ms


def run(settings: Settings) -> Result:
    """Announce blockages one after another, over SQLite and over PostgreSQL."""
    result = Result("report-to-plan")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    databases = ["sqlite"]
    if not result.left_out(postgresql.missing()):
        databases.append("postgresql")
    for database in databases:
        courses = _courses(database, settings.runs or _RUNS, settings.seed)
        for link, where in (("forward", "hub"), ("return", "terminal")):
            values = [course.after_ms(link) for course in courses]
            made = record(f"report-to-plan.{where}.{database}", "underpass", values)
            result.records.append(made)
            say(f"{made.id}: {made.median:.0f} ms, p90 {made.p90:.0f}")
    result.notes["measured"] = (
        "a terminal announces a blockage; from when the service has received that to the later of "
        "when the node has taken the plan over, by its acknowledgement, and the plan's beginning; "
        "one machine, one clock"
    )
    return result


def _courses(database: str, runs: int, seed: int) -> list[_Course]:
    with Testbed(PAPER_BEAM, terminals=_TERMINALS, shared=True, seed=seed) as testbed:
        control = Control(testbed, durable_postgresql=database == "postgresql")
        control.register()
        pair = Pair(testbed, Options(terminal=REPORTS, hub=control.hub_config))
        with Follower(control, _KINDS) as follower:
            # Wait for the first plans, and a second's reports of all nodes.
            time.sleep(_BETWEEN_S)
            return [_one(pair, follower) for _ in range(runs)]


def _one(pair: Pair[Testbed], follower: Follower) -> _Course:
    for _ in follower.come():
        # Discard earlier events.
        pass
    course = _Course()
    pair.terminal.api.announce(in_s=60.0, duration_s=20.0, confidence=1.0)
    deadline = time.monotonic() + _WITHIN_S
    while not course.complete:
        event = follower.next(deadline - time.monotonic())
        if event is None:
            raise NoPlanError(f"after {_WITHIN_S} s there is only {course}")
        course.take(event)
    pair.terminal.api.announce(in_s=60.0, duration_s=20.0, confidence=0.0)
    time.sleep(_BETWEEN_S)
    return course
