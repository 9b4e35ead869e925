"""The recorded drive through the closed loop: every part from gpsd to the ledger is real.

The product's `replay` plays a stretch of the receiver's log, with two road tunnels in it, to a gpsd
at the vehicle's terminal. The terminal reports its positions through the hub to control, which
predicts, plans and settles; four terminals download without an end on one beam. gpsd and the hop go
by the clock, so the stretch takes as long as the vehicle took. gpsfake would fall behind: it adds a
pause to each sentence, which makes seconds in ten minutes.

The same stretch is driven with the tunnels announced by their known times, and no map.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dama.prediction import Fix
from dama.prediction.geojson import to_geojson
from dama.prediction.places import distance_m
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, part_of, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.drives import field as field_data
from tests.drives.evaluation import CONFIDENCE, LATEST_MS
from tests.drives.field import Recorded, log_between, recorded
from tests.testbed import addresses, vehicle
from tests.testbed.client.transfer import Transfer, download
from tests.testbed.control import REPORTS, Control
from tests.testbed.following import Event, Follower
from tests.testbed.node import Options, Pair, terminal_node
from tests.testbed.process import ProcessError
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed, listens

_ROOT = Path(__file__).parents[3]
_RUNS = 3
_TERMINALS = 4
_KINDS = ("blockages", "ledger")
# The second and the third tunnel of the drive, half a minute apart; and how long it is driven
# before and behind them. Known times are announced four minutes ahead, as far as control predicts.
_TUNNELS = slice(1, 3)
_BEFORE_MS, _BEHIND_MS, _ANNOUNCED_MS = 300_000, 240_000, 240_000
_WARM_MS = 30_000
# Debts that remain when the drive ends go into the next plans.
_SETTLES_WITHIN_S, _LOOK_EVERY_S = 120.0, 5.0
_GPSD, _FEED = 2947, 2948
_ENDLESS = 1_000_000_000_000
_MOST_S = 1_200.0
_END_WITHIN_S = 30.0


class ClosedLoopError(RuntimeError):
    """A part of the loop does not work; the text says which one."""


@dataclass(frozen=True)
class Passage:
    """A passage of a tunnel: its obstruction, and when the receiver lost and found its fix, ms."""

    obstruction_id: str
    entry_ms: int
    exit_ms: int


@dataclass(frozen=True)
class Stretch:
    """A part of the drive; times are those of the recording, ms since the Unix epoch."""

    fixes: tuple[Fix, ...]
    passages: tuple[Passage, ...]

    @property
    def length_s(self) -> float:
        """How long it takes, s."""
        return (self.fixes[-1].time_ms - self.fixes[0].time_ms) / 1000.0


@dataclass
class Told:
    """What control has told of the vehicle's blockages, and of the ledger."""

    _blockages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    moved_bits: int = 0

    def take(self, event: Event) -> None:
        """Take in an event of the service."""
        if event.kind == "blockages":
            came_ms = round(1000 * event.came_s)
            self._blockages += [(came_ms, one) for one in event.data["blockages"]]
        elif event.kind == "ledger" and event.data["link"] == "forward":
            self.moved_bits += event.data["moved_bits"]

    def foresees(self, passage: Passage) -> bool:
        """Tell whether a passage was predicted 10 s before, with a confidence of a half or more."""
        until_ms = passage.entry_ms - LATEST_MS
        latest = {
            one["id"]: one
            for came_ms, one in self._blockages
            if came_ms <= until_ms and one.get("obstruction") == passage.obstruction_id
        }
        return any(
            one["state"] == "predicted" and one["confidence"] >= CONFIDENCE
            for one in latest.values()
        )


@dataclass(frozen=True)
class Driven:
    """What came of a drive.

    The bits are those of the clients while it lasted. `owed_bits` is what all together owed when
    the ledger was square, or else after two minutes; `moved_bits` what changed hands.
    """

    vehicle_bits: int
    others_bits: int
    owed_bits: int
    moved_bits: int
    foreseen: int
    tunnels: int


def run(settings: Settings) -> Result:
    """Drive by predictions and by known times, in turns."""
    result = Result("closed-loop")
    result.told["underpass"] = f"{TOLD_PAIR}; the service of the map, or of each tunnel's times"
    absent = field_data.missing_drive() or vehicle.missing() or missing("underpass")
    if result.left_out(absent):
        return result
    drive = recorded()
    stretch = stretch_of(drive)
    predicted: list[Driven] = []
    known: list[Driven] = []
    for number in range(settings.runs or _RUNS):
        for by_map, done in ((True, predicted), (False, known)):
            one = _drive(drive, stretch, by_map=by_map, seed=settings.seed + number)
            say(f"closed-loop, {'predicted' if by_map else 'by known times'}: {one}")
            done.append(one)
    for part, values in compared(predicted, known).items():
        made = record(f"closed-loop.{part}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.4g} {made.unit}")
    result.notes["stretch, s; tunnels in it, s"] = [
        round(stretch.length_s),
        [(one.exit_ms - one.entry_ms) / 1000.0 for one in stretch.passages],
    ]
    result.notes["Mbit of vehicle and others, moved by the ledger, owed: predicted, known"] = [
        [
            [round(bits / 1e6, 3) for bits in (d.vehicle_bits, d.others_bits, d.moved_bits)]
            + [d.owed_bits / 1e6]
            for d in pair
        ]
        for pair in zip(predicted, known, strict=True)
    ]
    result.notes["measured"] = (
        "the log of a real receiver, in real time; the hop is blocked from the last fix before "
        "each loss to the first one after it; the tunnels' lines are drawn from the drive itself; "
        f"four downloads without an end share {(PAPER_BEAM.forward.rate_bps or 0) // 10**6} Mbit/s"
    )
    return result


def stretch_of(drive: Recorded) -> Stretch:
    """Return the stretch of the drive that is replayed."""
    later = [fix.time_ms for fix in drive.fixes]
    passages = tuple(
        Passage(one.obstruction_id, one.time_ms, next(at for at in later if at > one.time_ms))
        for one in drive.entries[_TUNNELS]
    )
    from_ms = passages[0].entry_ms - _BEFORE_MS
    to_ms = passages[-1].exit_ms + _BEHIND_MS
    return Stretch(tuple(f for f in drive.fixes if from_ms <= f.time_ms <= to_ms), passages)


def compared(predicted: Sequence[Driven], known: Sequence[Driven]) -> dict[str, list[float]]:
    """Return the values of each figure."""
    pairs = list(zip(predicted, known, strict=True))
    return {
        "vehicle": [100.0 * part_of(one.vehicle_bits, by.vehicle_bits) for one, by in pairs],
        "others": [100.0 * part_of(one.others_bits, by.others_bits) for one, by in pairs],
        "foreseen": [100.0 * one.foreseen / one.tunnels for one in predicted],
        "debts": [float(one.owed_bits) for one in predicted],
    }


def owed_bits(balances: Mapping[int, int]) -> int:
    """Return what all terminals together owe, by what each is owed."""
    return sum(-bits for bits in balances.values() if bits < 0)


def _drive(drive: Recorded, stretch: Stretch, *, by_map: bool, seed: int) -> Driven:
    with Testbed(PAPER_BEAM, terminals=_TERMINALS, shared=True, seed=seed) as testbed:
        path = testbed.dir / "tunnels.geojson"
        path.write_text(json.dumps(to_geojson(drive.obstructions)))
        control = Control(testbed, maps=[path] if by_map else [])
        control.register()
        with Follower(control, _KINDS) as follower:
            options = Options(
                return_rate_bps=(PAPER_BEAM.return_.rate_bps or 0) // _TERMINALS,
                terminal=REPORTS,
                only={0: {"positions": vehicle.POSITIONS}},
                hub=control.hub_config,
            )
            pair = Pair(testbed, options)
            with _downloads(pair) as flows:
                return _driven(testbed, control, follower, pair, stretch, flows, by_map=by_map)


@dataclass
class _Flow:
    """A terminal's endless download; `began_s` is by the monotonic clock."""

    began_s: float = 0.0
    done: Transfer | None = None

    def bits(self, from_s: float, to_s: float) -> int:
        """Return what came between two times by the monotonic clock."""
        assert self.done is not None
        early, late = (self.done.bytes_at(at - self.began_s) for at in (from_s, to_s))
        return 8 * (late - early)


@dataclass
class _Flows:
    """The downloads of all terminals."""

    of: list[_Flow]
    _threads: list[threading.Thread]
    _stop: threading.Event

    def end(self) -> None:
        """End them, also if they have ended; one that gets nothing more ends with the test bed."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_END_WITHIN_S)


@contextmanager
def _downloads(pair: Pair[Testbed]) -> Iterator[_Flows]:
    """Have every terminal download until the context ends, or sooner."""
    stop = threading.Event()
    flows = [_Flow() for _ in range(_TERMINALS)]

    def one(index: int) -> None:
        flows[index].began_s = time.monotonic()
        flows[index].done = download(
            pair.testbed.terminals[index].client,
            addresses.ORIGIN,
            _ENDLESS,
            route=pair.http_forward(index),
            seed=index,
            deadline_s=_MOST_S,
            stop=stop,
        )

    threads = [
        threading.Thread(target=one, args=(index,), daemon=True) for index in range(_TERMINALS)
    ]
    for thread in threads:
        thread.start()
    every = _Flows(flows, threads, stop)
    try:
        yield every
    finally:
        every.end()


def _driven(
    testbed: Testbed,
    control: Control,
    follower: Follower,
    pair: Pair[Testbed],
    stretch: Stretch,
    flows: _Flows,
    *,
    by_map: bool,
) -> Driven:
    shift_ms = _begin(testbed, pair, stretch)
    to_monotonic_s = time.monotonic() - time.time()

    def monotonic_s(recorded_ms: int) -> float:
        return (recorded_ms + shift_ms) / 1000.0 + to_monotonic_s

    testbed.satlink.schedule(
        testbed.terminal.name,
        [
            (monotonic_s(one.entry_ms), (one.exit_ms - one.entry_ms) / 1000.0)
            for one in stretch.passages
        ],
    )
    told = Told()
    unannounced = [] if by_map else list(stretch.passages)
    end_s = monotonic_s(stretch.fixes[-1].time_ms)
    owed, look_s = 0, end_s
    while time.monotonic() < end_s + _SETTLES_WITHIN_S:
        event = follower.next(0.5)
        if event is not None:
            told.take(event)
        for one in list(unannounced):
            in_s = monotonic_s(one.entry_ms) - time.monotonic()
            if in_s <= _ANNOUNCED_MS / 1000.0:
                unannounced.remove(one)
                duration_s = (one.exit_ms - one.entry_ms) / 1000.0
                pair.terminal.api.announce(in_s=in_s, duration_s=duration_s, confidence=1.0)
        if time.monotonic() >= look_s:
            look_s += _LOOK_EVERY_S
            owed = owed_bits(control.balances("forward"))
            if owed == 0:
                break
    flows.end()
    _check(flows)
    window_s = monotonic_s(stretch.fixes[0].time_ms + _WARM_MS), end_s
    vehicle_bits, *others_bits = (flow.bits(*window_s) for flow in flows.of)
    passed = [
        Passage(one.obstruction_id, one.entry_ms + shift_ms, one.exit_ms + shift_ms)
        for one in stretch.passages
    ]
    return Driven(
        vehicle_bits,
        sum(others_bits),
        owed,
        told.moved_bits,
        sum(map(told.foresees, passed)),
        len(stretch.passages),
    )


def _begin(testbed: Testbed, pair: Pair[Testbed], stretch: Stretch) -> int:
    """Begin to drive; return how much later than in the recording, ms.

    Raises:
        ClosedLoopError: No position of the log comes to the terminal.
    """
    node = testbed.terminal.node
    log = testbed.dir / "drive.nmea"
    log.write_text(log_between(stretch.fixes[0].time_ms, stretch.fixes[-1].time_ms))
    feed = f"udp://127.0.0.1:{_FEED}"
    gpsd = testbed.start("gpsd", ["gpsd", "-N", "-n", "-S", str(_GPSD), feed], node)
    gpsd.wait_until(lambda: listens(node, _GPSD))
    program = [sys.executable, "-m", "underpass_control", "replay", str(log), "--json"]
    paths = {"PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}"}
    replay = testbed.start("replay", [*program, "--to", feed], node, paths)

    def fix() -> dict[str, Any]:
        found: dict[str, Any] = pair.terminal.api.get("/v1/position")["fix"] or {}
        return found

    try:
        replay.wait_until(lambda: fix().get("gnss_time_ms") is not None)
    except ProcessError as error:
        raise ClosedLoopError(f"no fix comes by gpsd to the terminal: {error}") from error
    first = fix()
    place = first["longitude"], first["latitude"]
    # On the motorway each place is that of one fix only.
    nearest = min(stretch.fixes, key=lambda one: distance_m(one.place, place))
    if distance_m(nearest.place, place) > 1.0:
        raise ClosedLoopError(f"the terminal is at {place}, where the recorded drive never was")
    return int(first["gnss_time_ms"]) - nearest.time_ms


def _check(flows: _Flows) -> None:
    """Make sure that the downloads went on until they were ended."""
    for index, flow in enumerate(flows.of):
        if flow.done is None or not (flow.done.error or "").startswith("TimeoutError"):
            why = "it got nothing more" if flow.done is None else flow.done.error
            raise ClosedLoopError(f"the download of {terminal_node(index)} has ended: {why}")
