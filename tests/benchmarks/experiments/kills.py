"""A hundred kills of either node amid transfers: nothing in custody is lost or duplicated."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.kills.load import Load
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed.custody_files import content_on_disk
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.profile import Link, symmetric
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_RUNS = 100
_PROFILE = symmetric("kills", Link(rate_bps=20_000_000, delay_ms=50.0, queue_ms=500.0))
_DISK = {"custody": {"durability": "disk"}}
_EARLIEST_S, _LATEST_S = 0.3, 4.0
_SHORTEST_BLOCKAGE_S, _LONGEST_BLOCKAGE_S = 0.5, 3.0
# An experiment that has counted none of these has looked for none.
ON_DISK = "bytes on it of streams whose receiver lived"
# All transfers have to end within this time after the restart and the blockage.
_SETTLE_S = 60.0


@dataclass(frozen=True)
class _Plan:
    """One run: which node is killed and when, s from its beginning."""

    killed: str
    kill_s: float
    block_s: float | None
    defer_s: float
    blocked_after_s: float

    @classmethod
    def draw(cls, number: int, random_: random.Random) -> _Plan:
        """Draw a run; every other one has a blockage around the kill."""
        blocked = number % 2 == 1
        least = _EARLIEST_S + (_SHORTEST_BLOCKAGE_S if blocked else 0.0)
        kill_s = random_.uniform(least, _LATEST_S)
        longest = min(_LONGEST_BLOCKAGE_S, kill_s - _EARLIEST_S)
        before_s = random_.uniform(_SHORTEST_BLOCKAGE_S, longest) if blocked else 0.0
        return cls(
            killed=random_.choice(("terminal", "hub")),
            kill_s=kill_s,
            block_s=kill_s - before_s if blocked else None,
            defer_s=random_.uniform(0.0, kill_s),
            blocked_after_s=random_.uniform(0.0, 1.0),
        )

    def __str__(self) -> str:
        blocked = "" if self.block_s is None else f", blocked from {self.block_s:.3f} s"
        return f"{self.killed} killed at {self.kill_s:.3f} s{blocked}"


def run(settings: Settings) -> Result:
    """Kill nodes, and count the violations."""
    result = Result("kill-9")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    runs = settings.runs or _RUNS
    found: list[str] = []
    seen: Counter[str] = Counter()
    with Testbed(_PROFILE, seed=settings.seed) as testbed:
        pair = Pair(testbed, Options(terminal=_DISK, hub=_DISK))
        for number in range(runs):
            random_ = random.Random(settings.seed * 1_000_000 + number)
            plan = _Plan.draw(number, random_)
            violations = _one(pair, plan, number, random_, seen)
            found += [f"run {number}, {plan}: {each}" for each in violations]
            say(f"kill -9  {number + 1} of {runs}: {plan}; {violations or 'no violation'}")
        found += unseen(seen)
        if found:
            say(f"the logs: {_logs_of(testbed)}")
    result.records.append(record("kill-9.violations", "underpass", [float(len(found))]))
    result.notes["runs"] = runs
    result.notes["seen"] = dict(sorted(seen.items()))
    result.notes["violations"] = found
    return result


def unseen(seen: Counter[str]) -> list[str]:
    """Return as violations what no run has met, so that the experiment shows nothing of it."""
    if seen[ON_DISK]:
        return []
    return ["no kill met bytes of a stream on the disk, so none was looked for"]


def _one(
    pair: Pair[Testbed], plan: _Plan, number: int, random_: random.Random, seen: Counter[str]
) -> list[str]:
    satlink, name = pair.testbed.satlink, pair.testbed.terminal.name
    victim = pair.hub if plan.killed == "hub" else pair.terminal
    load = Load(pair, number, plan.defer_s, deadline_s=plan.kill_s + _SETTLE_S)
    with ThreadPoolExecutor(5) as pool:
        began = time.monotonic()
        load.begin(pool, random_)
        if plan.block_s is not None:
            _sleep_until(began + plan.block_s)
            satlink.block(name)
        _sleep_until(began + plan.kill_s)
        victim.process.kill()
        in_custody = _in_custody(pair, plan, load)
        victim.start()
        if plan.block_s is not None:
            time.sleep(plan.blocked_after_s)
            satlink.unblock(name)
        pair.wait_until_ready()
    found = []
    for what, settled in (
        ("an upload at the origin", load.origin_is_done),
        ("streams", lambda: not any(map(_streams, (pair.hub, pair.terminal)))),
        ("custody", lambda: not any(map(_bundles, (pair.hub, pair.terminal)))),
    ):
        if not _comes(settled, _SETTLE_S):
            found.append(f"{what}: not over after {_SETTLE_S:g} s")
    found += _violations(load, plan, in_custody, seen)
    _note(victim, in_custody, plan, seen)
    return found


def _in_custody(pair: Pair[Testbed], plan: _Plan, load: Load) -> dict[int, int]:
    """Return how far the dead node's disk has the streams whose receiver lives, by seed."""
    number, streams = (
        (HUB_NODE, load.downloads) if plan.killed == "hub" else (terminal_node(0), load.uploads)
    )
    folder = pair.testbed.dir / f"state-{number}" / "custody"
    return content_on_disk(folder, [stream.seed for stream in streams])


def _violations(
    load: Load, plan: _Plan, in_custody: dict[int, int], seen: Counter[str]
) -> list[str]:
    found = []
    for course in load.courses(in_custody):
        found += course.violations()
        seen[f"streams that ended: {course.ending}"] += 1
        seen["bytes received"] += course.received
    for answered in load.answers():
        found += answered.violations()
    deferred = load.deferred(plan.killed)
    found += deferred.violations()
    seen[f"kept requests: {deferred.state or 'not accepted'}"] += 1
    return found


def _note(victim: Node, in_custody: dict[int, int], plan: _Plan, seen: Counter[str]) -> None:
    """Count events that show whether the kills hit anything."""
    seen[f"kills of the {plan.killed}"] += 1
    seen["streams with bytes on the killed node's disk"] += sum(map(bool, in_custody.values()))
    seen[ON_DISK] += sum(in_custody.values())
    disk = victim.status()["custody"]["disk"]
    for key in ("restored_bundles", "damaged_at_start", "lost_bundles"):
        seen[key.replace("_", " ")] += disk[key]


def _streams(node: Node) -> int:
    return len(node.api.get("/v1/streams"))


def _bundles(node: Node) -> int:
    bundles: int = node.status()["custody"]["bundles"]
    return bundles


def _comes(settled: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not settled():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))


def _logs_of(testbed: Testbed) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="underpass-kills-"))
    for log in testbed.dir.glob("*.log"):
        shutil.copy(log, folder)
    return folder
