"""A drive along the island's roads: a vehicle's motion, and its receiver's fixes of it."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import pairwise

from dama.prediction import Fix
from dama.prediction.places import Plane
from tests.drives.island import PLANE, Metres
from tests.drives.roads import Piece, Roads, turn

# Fixes come each second from this time on: 2026-06-01 08:00 UTC.
START_MS = 1_780_300_800_000
_STEP_M = 5.0
_ACCELERATION = 1.1
_BRAKING = 1.6
_TURN_MPS = 6.0
_SIDEWAYS = 2.2
_CRAWL_MPS = 0.5


@dataclass(frozen=True)
class Covered:
    """A blockage as it was: the covered way, and when the vehicle was below."""

    way_id: int
    entry_ms: int
    exit_ms: int
    # The last fix before the loss, which the entry is judged by; none: nothing was lost.
    last_fix_ms: int


@dataclass(frozen=True)
class Drive:
    """The fixes of the receiver, and the truth."""

    seed: int
    fixes: tuple[Fix, ...]
    covered: tuple[Covered, ...]
    # From and to when the vehicle stood with its receiver off or blind.
    blind_stops_ms: tuple[tuple[int, int], ...]
    route: tuple[Metres, ...]
    u_turned: bool
    # At each fix, the number of the route's piece that the vehicle was on.
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Receiver:
    """A receiver: the spread of its wandering error, and how late its fix returns.

    Each is drawn between two bounds, per drive or per cover. When it loses its satellites, it
    repeats its last place for `freezes_s`, or extrapolates straight on for `runs_on_s`.
    """

    wander_m: tuple[float, float] = (1.5, 4.5)
    returns_s: tuple[float, float] = (0.5, 3.0)
    freezes_s: float = 0.0
    runs_on_s: float = 0.0


@dataclass(frozen=True)
class Hindrance:
    """A delay at a distance before a portal: a stop, or a queue that creeps up to it."""

    before_m: float
    wait_s: float = 0.0
    creep_mps: float | None = None


@dataclass
class _Sample:
    at: Metres
    way_id: int | None
    limit_mps: float
    wait_s: float = 0.0
    piece: int = 0


def drive(roads: Roads, seed: int, *, length_m: float = 8_000.0) -> Drive:
    """Make the drive of a seed: a route, a driver, traffic lights, and a receiver's errors."""
    dice = random.Random(seed)
    route = roads.route(dice, length_m)
    u_turned = dice.random() < 0.15
    if u_turned:
        route = _turned_back(dice, route)
    samples = _samples(roads.signals, dice, route)
    blind = _add_blind_stop(dice, samples) if dice.random() < 0.25 else None
    times, covered_s = _motion(samples)
    stops = []
    if blind is not None:
        stops.append((times[blind][0], times[blind][1]))
    fixes = tuple(_receive(dice, samples, times, covered_s, stops))
    return Drive(
        seed,
        fixes,
        tuple(_truth(covered_s, fixes)),
        tuple((_ms(begin), _ms(end)) for begin, end in stops),
        tuple(sample.at for sample in samples),
        u_turned,
    )


def passage(
    roads: Roads,
    name: str,
    *,
    lead_m: float,
    tail_m: float,
    receiver: Receiver | None = None,
    seed: int = 0,
) -> Drive:
    """Make a drive through the first covered way of a road, in the direction in which it is drawn.

    Without turns, lights and stops: so many metres before the entry, and behind the exit.
    """
    along = sorted(
        (piece for piece in roads.pieces if _as_drawn(piece, name)), key=lambda p: p.points[0]
    )
    entry = next(number for number, piece in enumerate(along) if piece.way.covered)
    leave = next(n for n in range(entry, len(along)) if not along[n].way.covered)
    before = [Piece(p.way, p.points[::-1]) for p in reversed(along[:entry])]
    lead = [Piece(p.way, p.points[::-1]) for p in reversed(_first(before, lead_m))]
    route = [*lead, *along[entry:leave], *_first(along[leave:], tail_m)]
    dice = random.Random(seed)
    samples = _samples(roads.signals, dice, route)
    times, covered_s = _motion(samples)
    fixes = tuple(_receive(dice, samples, times, covered_s, [], receiver=receiver))
    points = tuple(sample.at for sample in samples)
    return Drive(seed, fixes, tuple(_truth(covered_s, fixes)), (), points, u_turned=False)


def _as_drawn(piece: Piece, name: str) -> bool:
    if piece.way.tags["name"] != name:
        return False
    places = [piece.way.points.index(point) for point in piece.points]
    return places == sorted(places)


def _first(pieces: list[Piece], length_m: float) -> list[Piece]:
    """Return what lies within a distance from the beginning."""
    kept = []
    for piece in pieces:
        if piece.length_m >= length_m:
            kept.append(_cut(piece, length_m / piece.length_m))
            break
        kept.append(piece)
        length_m -= piece.length_m
    return kept


def _ms(seconds: float) -> int:
    return START_MS + round(1000 * seconds)


def _turned_back(dice: random.Random, route: list[Piece]) -> list[Piece]:
    """End the route in the middle of an open two-way piece, and drive back from there."""
    places = [n for n, p in enumerate(route) if not p.way.oneway and not p.way.covered]
    if not places:
        return route
    place = dice.choice(places)
    kept = route[: place + 1]
    back = []
    for piece in reversed(kept):
        if piece.way.oneway:
            break
        back.append(Piece(piece.way, piece.points[::-1]))
    half = _cut(kept[-1], 0.5)
    return [*kept[:-1], half, Piece(half.way, half.points[::-1]), *back[1:]]


def _cut(piece: Piece, part: float) -> Piece:
    left = piece.length_m * part
    points = [piece.points[0]]
    for a, b in pairwise(piece.points):
        step = math.dist(a, b)
        if step >= left:
            share = left / step
            points.append((a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])))
            break
        left -= step
        points.append(b)
    return Piece(piece.way, tuple(points))


def _samples(signals: Container[Metres], dice: random.Random, route: list[Piece]) -> list[_Sample]:
    """Lay samples each few metres along the route, with the speed that each allows."""
    habit, mood = dice.uniform(0.85, 1.12), 0.0
    samples: list[_Sample] = []
    for number, piece in enumerate(route):
        way_id = piece.way.id if piece.way.covered else None
        first = len(samples)
        for a, b in pairwise(piece.points):
            meets_light = a in signals and bool(samples) and dice.random() < 0.5
            count = max(math.ceil(math.dist(a, b) / _STEP_M), 1)
            for step in range(count):
                share = step / count
                at = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
                # Attention and traffic: a speed that wanders by some 7 % over half a kilometre.
                mood = 0.99 * mood + dice.gauss(0.0, 0.01)
                allowed = piece.way.limit_mps * piece.pace * (habit + mood)
                samples.append(_Sample(at, way_id, allowed, piece=number))
                if meets_light and step == 0:
                    # The stop line lies before the junction, and before a portal that begins there.
                    samples[-2].wait_s = dice.uniform(4.0, 40.0)
        if number and turn(route[number - 1], piece) > math.radians(40):
            samples[first].limit_mps = min(_TURN_MPS, samples[first].limit_mps)
        if number and piece.is_back(route[number - 1]):
            samples[first].limit_mps = _CRAWL_MPS
    for before, here, after in zip(samples, samples[3:], samples[6:], strict=False):
        here.limit_mps = min(here.limit_mps, _bend_mps(before.at, here.at, after.at))
    samples[0].limit_mps = samples[-1].limit_mps = _CRAWL_MPS
    return samples


def _bend_mps(a: Metres, b: Metres, c: Metres) -> float:
    """Return the speed that a bend through three points allows."""
    cross = abs((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
    if cross < 1e-6:
        return math.inf
    radius = math.dist(a, b) * math.dist(b, c) * math.dist(a, c) / (2.0 * cross)
    return max(math.sqrt(_SIDEWAYS * radius), _TURN_MPS)


def _add_blind_stop(dice: random.Random, samples: list[_Sample]) -> int | None:
    """Let the vehicle stand somewhere in the open for some minutes."""
    place = dice.randrange(len(samples))
    if samples[place].way_id is not None:
        return None
    samples[place].wait_s = dice.uniform(20.0, 200.0)
    return place


def _motion(
    samples: list[_Sample],
) -> tuple[list[tuple[float, float]], list[tuple[int, float, float]]]:
    """Return when each sample is reached and left, and from and to when each cover hides."""
    speeds = [_CRAWL_MPS if sample.wait_s else sample.limit_mps for sample in samples]
    steps = [max(math.dist(a.at, b.at), 0.01) for a, b in pairwise(samples)]
    for n in range(len(speeds) - 2, -1, -1):
        speeds[n] = min(speeds[n], math.sqrt(speeds[n + 1] ** 2 + 2 * _BRAKING * steps[n]))
    for n, step in enumerate(steps):
        speeds[n + 1] = min(speeds[n + 1], math.sqrt(speeds[n] ** 2 + 2 * _ACCELERATION * step))
    now, times = 0.0, []
    for n, sample in enumerate(samples):
        times.append((now, now + sample.wait_s))
        now += sample.wait_s
        if n < len(steps):
            now += 2 * steps[n] / (speeds[n] + speeds[n + 1])
    covered: list[tuple[int, float, float]] = []
    under = False
    for sample, (reached, left) in zip(samples, times, strict=True):
        if sample.way_id is not None:
            # From a stop, the way from one sample under a roof to the next takes long.
            if covered and (under or covered[-1][2] >= reached - 2.0):
                covered[-1] = (covered[-1][0], covered[-1][1], left)
            else:
                covered.append((sample.way_id, reached, left))
        under = sample.way_id is not None
    return times, covered


def _receive(
    dice: random.Random,
    samples: list[_Sample],
    times: list[tuple[float, float]],
    covered_s: list[tuple[int, float, float]],
    stops: list[tuple[float, float]],
    plane: Plane = PLANE,
    receiver: Receiver | None = None,
) -> Iterator[Fix]:
    """Yield a fix each second, with errors that wander, except where there is none."""
    receiver = receiver or Receiver()
    # Reception comes back some seconds after the exit; and it fails elsewhere, too.
    lost = [(begin, end + dice.uniform(*receiver.returns_s)) for _, begin, end in covered_s] + stops
    end_s, at = times[-1][1], 0.0
    while (at := at + dice.expovariate(1 / 200.0)) < end_s:
        lost.append((at, at + dice.uniform(1.5, 8.0)))
    wander_m = dice.uniform(*receiver.wander_m)
    keep = math.exp(-1 / 20.0)
    east, north = dice.gauss(0, wander_m), dice.gauss(0, wander_m)
    reached = [time for time, _ in times]
    last: Fix | None = None
    for second in range(int(end_s)):
        east = keep * east + dice.gauss(0, wander_m * math.sqrt(1 - keep * keep))
        north = keep * north + dice.gauss(0, wander_m * math.sqrt(1 - keep * keep))
        if any(begin <= second <= end for begin, end in lost):
            lost_s = second - max(begin for begin, end in lost if begin <= second <= end)
            if last is not None and (repeated := _unmeasured(receiver, last, second, lost_s)):
                yield repeated
            continue
        (x, y), speed, heading = _at(samples, times, reached, second)
        lon, lat = plane.position(x + east + dice.gauss(0, 0.5), y + north + dice.gauss(0, 0.5))
        measured = max(speed + dice.gauss(0, 0.15), 0.0)
        bearing = (math.degrees(heading) + dice.gauss(0, 2.0)) % 360.0 if measured > 1.0 else None
        last = Fix(_ms(second), lon, lat, measured, bearing)
        yield last


def _unmeasured(receiver: Receiver, last: Fix, second: int, lost_s: float) -> Fix | None:
    """Return what a receiver calls a fix so long after it has lost its satellites."""
    place = last.place
    if receiver.runs_on_s and last.speed_mps is not None and last.heading_deg is not None:
        way_m = last.speed_mps * (second - (last.time_ms - START_MS) / 1000.0)
        towards = math.radians(last.heading_deg)
        place = Plane(place).position(way_m * math.sin(towards), way_m * math.cos(towards))
    if lost_s > max(receiver.freezes_s, receiver.runs_on_s):
        return None
    return Fix(_ms(second), *place, last.speed_mps, last.heading_deg)


def follow(
    dice: random.Random,
    route: list[Piece],
    *,
    signals: Container[Metres],
    plane: Plane,
    receiver: Receiver,
    hindrance: Hindrance | None = None,
    parked_s: float = 0.0,
    waits: tuple[int, float] | None = None,
) -> Drive:
    """Drive a route, and park at its end for so long, or go on there without stopping.

    `hindrance` is what holds the vehicle up before its first cover, `waits` the number of a piece
    and how long the vehicle stands where it begins, s.
    """
    samples = _samples(signals, dice, route)
    if waits is not None:
        number, wait_s = waits
        next(sample for sample in samples if sample.piece == number).wait_s = wait_s
    if parked_s:
        samples[-1].wait_s = parked_s
    else:
        # It drives on out of sight: a stop before a portal would make the prediction false.
        samples[-1].limit_mps = samples[-2].limit_mps
    if hindrance is not None:
        _hinder(samples, hindrance)
    times, covered_s = _motion(samples)
    fixes = tuple(_receive(dice, samples, times, covered_s, [], plane, receiver))
    points = tuple(sample.at for sample in samples)
    reached = [_ms(time) for time, _ in times]
    pieces = tuple(samples[bisect_right(reached, fix.time_ms) - 1].piece for fix in fixes)
    covered = tuple(_truth(covered_s, fixes))
    return Drive(0, fixes, covered, (), points, u_turned=False, pieces=pieces)


def _hinder(samples: list[_Sample], hindrance: Hindrance) -> None:
    entry = next((n for n, sample in enumerate(samples) if sample.way_id is not None), 0)
    away_m = 0.0
    for n in range(entry - 1, 0, -1):
        away_m += math.dist(samples[n].at, samples[n + 1].at)
        if away_m >= hindrance.before_m:
            samples[n].wait_s = hindrance.wait_s
            return
        if hindrance.creep_mps is not None:
            samples[n].limit_mps = min(samples[n].limit_mps, hindrance.creep_mps)


def _at(
    samples: list[_Sample], times: list[tuple[float, float]], reached: list[float], now: float
) -> tuple[Metres, float, float]:
    """Return where the vehicle is, how fast, and in which direction."""
    n = min(bisect_right(reached, now), len(samples) - 1) - 1
    a, b = samples[n].at, samples[n + 1].at
    heading = math.atan2(b[0] - a[0], b[1] - a[1])
    left, then = times[n][1], times[n + 1][0]
    if now >= then:
        return b, 0.0, heading
    if now <= left:
        return a, 0.0, heading
    share = min((now - left) / (then - left), 1.0)
    at = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
    return at, math.dist(a, b) / (then - left), heading


def _truth(covered_s: list[tuple[int, float, float]], fixes: tuple[Fix, ...]) -> Iterator[Covered]:
    fix_times = [fix.time_ms for fix in fixes]
    for way_id, entry, leave in covered_s:
        place = bisect_right(fix_times, _ms(entry))
        if place:
            yield Covered(way_id, _ms(entry), _ms(leave), fix_times[place - 1])
