"""Kinds of drives over an extract: each is a question that a predictor can get wrong."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import shapely

from dama.prediction import ObstructionMap
from dama.prediction.network import Edge, Way
from dama.prediction.places import Line, distance_m, heading_deg, turn_deg
from tests.drives.drive import Drive, Hindrance, Receiver, follow
from tests.drives.extract import Extract, round_of

# A drive begins so far before the place that it is about, and goes on so far behind it.
_LEAD_M = (900.0, 2_500.0)
_TAIL_M = 700.0
# Roads above and beside a cover are so near to it.
_BESIDE_M = 50.0
# The way that the map lacks lies so near before the portal.
_UNKNOWN_M = 1_200.0
# The way back to a cover that was left is no longer than this.
_BACK_M = 1_200.0
_TRIES = 40
# A ferry crosses so far, and so fast in km/h; its vehicles wait on board for so long beforehand.
_FERRY_M = (300.0, 1_200.0)
_FERRY_KMH = 14
_BOARDED_S = (30.0, 150.0)
# In rush hour this part of the ways is driven at such a part of its limit.
_SLOW_WAYS = 1 / 3
_SLOW = (0.45, 0.75)

_GOOD = Receiver()
_POOR = Receiver(wander_m=(4.0, 9.0), returns_s=(3.0, 12.0))
_FREEZES = Receiver(freezes_s=60.0)
_EXTRAPOLATES = Receiver(runs_on_s=30.0)
_RETURNS_LATE = Receiver(returns_s=(15.0, 60.0))


@dataclass(frozen=True)
class KnownDrive:
    """A drive with its kind, its map, and the edges that it takes."""

    kind: str
    seed: int
    drive: Drive
    route: Line
    edges: tuple[Edge, ...]
    known: ObstructionMap


@dataclass(frozen=True)
class _Plan:
    """What will be driven, by default with a receiver that is drawn.

    `boards` is the number of the edge that is a ferry, and how long it waits before it leaves, s.
    """

    edges: list[Edge]
    hindrance: Hindrance | None = None
    lacks_way: int | None = None
    parked_s: float = 0.0
    receiver: Receiver | None = None
    boards: tuple[int, float] | None = None


def drives_over(
    extract: Extract,
    count: int,
    first_seed: int = 0,
    kinds: Iterable[str] | None = None,
    *,
    in_rush_hour: bool = False,
) -> Iterator[KnownDrive]:
    """Make so many drives, the kinds in turn; a kind that the extract has no place for is left out.

    Every third drive has a poor receiver, unless its kind has one of its own. In rush hour a third
    of the ways is slow, the same ones for every drive.
    """
    names = list(KINDS if kinds is None else kinds)
    for seed in range(first_seed, first_seed + count):
        dice = random.Random(seed)
        kind = names[seed % len(names)]
        makes = (KINDS | FREE | TWICE | UNUSUAL)[kind]
        plan = next((p for _ in range(_TRIES) if (p := makes(extract, dice))), None)
        if plan is not None:
            yield _driven(extract, dice, kind, seed, plan, in_rush_hour=in_rush_hour)


def again(extract: Extract, made: KnownDrive, number: int = 0) -> Drive:
    """Make another drive over the same roads: another day, driver, receiver, and nothing ahead.

    Each number makes another one.
    """
    return follow(
        random.Random(f"again {made.seed}{f' {number}' if number else ''}"),
        [extract.piece(edge) for edge in made.edges],
        signals=extract.signals,
        plane=extract.plane,
        receiver=_GOOD,
        hindrance=None,
    )


def _rush_hour_pace(way_id: int) -> float:
    """Return the part of a way's limit that the traffic of the rush hour leaves."""
    dice = random.Random(f"rush hour {way_id}")
    return dice.uniform(*_SLOW) if dice.random() < _SLOW_WAYS else 1.0


def _driven(
    extract: Extract,
    dice: random.Random,
    kind: str,
    seed: int,
    plan: _Plan,
    *,
    in_rush_hour: bool,
) -> KnownDrive:
    pieces = [extract.piece(edge) for edge in plan.edges]
    if in_rush_hour:
        pieces = [replace(piece, pace=_rush_hour_pace(piece.way.id)) for piece in pieces]
    made = follow(
        dice,
        pieces,
        signals=extract.signals,
        plane=extract.plane,
        receiver=plan.receiver or (_POOR if dice.random() < 1 / 3 else _GOOD),
        hindrance=plan.hindrance,
        parked_s=plan.parked_s,
        waits=plan.boards,
    )
    route = tuple(extract.plane.position(*point) for point in made.route[::4])
    known = extract.known if plan.lacks_way is None else _without(extract, plan.lacks_way)
    return KnownDrive(kind, seed, made, route, tuple(plan.edges), known)


def _without(extract: Extract, way_id: int) -> ObstructionMap:
    """Return the map as if a way had never been drawn."""
    lacking = f"osm:way/{way_id}/"
    return ObstructionMap(
        replace(o, roads=tuple(road for road in o.roads if not road.id.startswith(lacking)))
        for o in extract.obstructions
    )


def _through(extract: Extract, dice: random.Random) -> _Plan | None:
    portal = dice.choice(_portals(extract))
    beyond = _onward(extract, dice, portal)
    return _over(_before(extract, dice, portal), beyond)


def _car_park(extract: Extract, dice: random.Random) -> _Plan | None:
    """Leave the way to a portal at one of the last junctions before it, and park soon."""
    plan = _turn_off(extract, dice, tail_m=dice.uniform(20.0, 200.0))
    return plan and replace(plan, parked_s=dice.uniform(60.0, 240.0))


def _turn_off(extract: Extract, dice: random.Random, tail_m: float = _TAIL_M) -> _Plan | None:
    """Leave the way to a portal at one of the last junctions before it."""
    lead = _before(extract, dice, dice.choice(_portals(extract)))
    places = [n for n in range(len(lead) - 1) if len(extract.steps(lead[n])) > 1]
    if not places:
        return None
    last = places[-1] if dice.random() < 0.5 else dice.choice(places[-4:])
    others = [s for s in extract.steps(lead[last]) if s.id != lead[last + 1].id]
    others = [s for s in others if extract.cover(s) is None]
    if not others:
        return None
    driven = lead[: last + 1]
    first = dice.choice(others)
    away = _onward(extract, dice, first, covered=False, driven=driven, tail_m=tail_m)
    return _over(driven, away)


def _above(extract: Extract, dice: random.Random) -> _Plan | None:
    return _near(extract, dice, lambda turned: 30.0 < turned < 150.0)


def _beside(extract: Extract, dice: random.Random) -> _Plan | None:
    return _near(extract, dice, lambda turned: turned <= 30.0)


def _near(extract: Extract, dice: random.Random, fits: Callable[[float], bool]) -> _Plan | None:
    """Drive a road that comes near to a cover and does not lead into it."""
    found = [edge for edge, turned in _neighbours(extract) if fits(turned)]
    if not found:
        return None
    here = dice.choice(found)
    beyond = _onward(extract, dice, here, covered=False)
    return _over(_before(extract, dice, here), beyond)


def _light(extract: Extract, dice: random.Random) -> _Plan | None:
    """Stop at a light before the portal."""
    plan = _through(extract, dice)
    stop = Hindrance(dice.uniform(8.0, 120.0), wait_s=dice.uniform(5.0, 60.0))
    return plan and replace(plan, hindrance=stop)


def _queue(extract: Extract, dice: random.Random) -> _Plan | None:
    """Creep up to the portal in a jam."""
    plan = _through(extract, dice)
    jam = Hindrance(dice.uniform(20.0, 150.0), creep_mps=dice.uniform(0.6, 3.0))
    return plan and replace(plan, hindrance=jam)


def _junction_inside(extract: Extract, dice: random.Random) -> _Plan | None:
    plan = _through(extract, dice)
    inside = [edge for edge in plan.edges if extract.cover(edge)] if plan else []
    branches = (
        sum(extract.cover(step) is not None for step in extract.steps(edge)) for edge in inside
    )
    return plan if any(count > 1 for count in branches) else None


def _two_in_a_row(extract: Extract, dice: random.Random) -> _Plan | None:
    portal = dice.choice(_portals(extract))
    beyond = _onward(extract, dice, portal, tail_m=2_500.0)
    if beyond is None:
        return None
    edges = [*_before(extract, dice, portal), *beyond]
    covers = {extract.cover(edge) for edge in edges} - {None}
    return _Plan(edges) if len(covers) > 1 else None


def _unknown_road(extract: Extract, dice: random.Random) -> _Plan | None:
    """Come to the portal over a way that the map lacks."""
    portal = dice.choice(_portals(extract))
    lead = _before(extract, dice, portal)
    ways, away_m = [], 0.0
    for edge in reversed(lead):
        # The last way leads into the portal: without it there is nothing to predict by.
        if away_m > 0.0 and away_m < _UNKNOWN_M and extract.cover(edge) is None:
            ways.append(edge.way.id)
        away_m += edge.length_m
    ways = [way for way in ways if way != lead[-1].way.id]
    beyond = _onward(extract, dice, portal)
    if not ways or beyond is None:
        return None
    return _Plan([*lead, *beyond], lacks_way=dice.choice(ways))


def _wander(extract: Extract, dice: random.Random) -> _Plan | None:
    """Drive wherever the road leads some driver."""
    edges = [edge for edge in extract.network.edges.values() if extract.cover(edge) is None]
    first = dice.choices(edges, [min(edge.length_m, 1_000.0) for edge in edges])[0]
    ways = _onward(extract, dice, first, tail_m=6_000.0)
    return _over([], ways)


def _approach(extract: Extract, dice: random.Random) -> _Plan | None:
    """Begin where some traffic gets to a portal, and drive wherever the road leads some driver."""
    lead = _before(extract, dice, dice.choice(_portals(extract)))
    if not lead:
        return None
    return _over([], _onward(extract, dice, lead[0], tail_m=_LEAD_M[1] + _TAIL_M))


def _twice(extract: Extract, dice: random.Random) -> _Plan | None:
    """Drive through a cover, and by the shortest way back to it and through it once more."""
    portal = dice.choice(_portals(extract))
    first = _out_of(extract, dice, portal)
    back = first and _way_back(extract, first[-1], extract.cover(portal))
    if not first or not back:
        return None
    beyond = _onward(extract, dice, back[-1])
    return _over([*_before(extract, dice, portal), *first, *back[:-1]], beyond)


def _out_of(extract: Extract, dice: random.Random, portal: Edge) -> list[Edge] | None:
    """Return a way from a portal through its cover, and the first edge behind it."""
    edges = [portal]
    while extract.cover(edges[-1]):
        step = extract.driven_on(dice, edges)
        if step is None or step in edges:
            return None
        edges.append(step)
    return edges


def _way_back(extract: Extract, edge: Edge, cover: str | None) -> list[Edge] | None:
    """Return the shortest way in the open from behind an edge to a cover, its first edge last."""
    # Ways of one length to one edge come in the order in which they were found.
    order = itertools.count()
    todo: list[tuple[float, int, str, tuple[Edge, ...]]] = [(0.0, next(order), edge.id, ())]
    seen: set[str] = set()
    while todo:
        done_m, _, here, ways = heapq.heappop(todo)
        if ways and extract.cover(ways[-1]) == cover:
            return list(ways)
        if here in seen or (ways and extract.cover(ways[-1])):
            continue
        seen.add(here)
        for step in extract.steps(ways[-1] if ways else edge):
            if done_m + step.length_m <= _BACK_M:
                further_m = done_m + step.length_m
                heapq.heappush(todo, (further_m, next(order), step.id, (*ways, step)))
    return None


def _ferry(extract: Extract, dice: random.Random) -> _Plan | None:
    """Cross by a ferry, which no map has as a road, to a road that leads to a portal."""
    portal = dice.choice(_portals(extract))
    behind = _before(extract, dice, portal)
    if not behind:
        return None
    landing = behind[0].line[0]
    piers = [
        edge
        for edge in extract.network.edges.values()
        if extract.cover(edge) is None
        and _FERRY_M[0] <= distance_m(edge.line[-1], landing) <= _FERRY_M[1]
    ]
    beyond = _onward(extract, dice, portal)
    if not piers or beyond is None:
        return None
    pier = dice.choice(piers)
    lead = [*_before(extract, dice, pier), pier]
    line = (pier.line[-1], landing)
    tags = {"route": "ferry", "highway": "unclassified", "maxspeed": str(_FERRY_KMH)}
    way = Way(0, (pier.ends, behind[0].begins), line, tags)
    name = f"ferry:{pier.id}:{behind[0].id}"
    crossing = Edge(name, way, pier.ends, behind[0].begins, line, distance_m(*line))
    boards = len(lead), dice.uniform(*_BOARDED_S)
    return _Plan([*lead, crossing, *behind, *beyond], boards=boards)


def _through_with(receiver: Receiver) -> Callable[[Extract, random.Random], _Plan | None]:
    def makes(extract: Extract, dice: random.Random) -> _Plan | None:
        plan = _through(extract, dice)
        return plan and replace(plan, receiver=receiver)

    return makes


KINDS: dict[str, Callable[[Extract, random.Random], _Plan | None]] = {
    "through": _through,
    "turn-off": _turn_off,
    "wander": _wander,
    "above": _above,
    "light": _light,
    "through again": _through,
    "beside": _beside,
    "queue": _queue,
    "wander again": _wander,
    "junction inside": _junction_inside,
    "two in a row": _two_in_a_row,
    "unknown road": _unknown_road,
    "car park": _car_park,
}

# Drives that are rare, or have receivers that are. Each is judged by itself.
UNUSUAL: dict[str, Callable[[Extract, random.Random], _Plan | None]] = {
    "car park": _car_park,
    "ferry": _ferry,
    "freezes": _through_with(_FREEZES),
    "extrapolates": _through_with(_EXTRAPOLATES),
    "returns late": _through_with(_RETURNS_LATE),
}

# The way between two passages of an obstruction is short enough to predict the second before the
# first.
TWICE: dict[str, Callable[[Extract, random.Random], _Plan | None]] = {"twice": _twice}

# Drives whose drivers choose freely at each junction. The other kinds are made to pass a portal, or
# not to, so only these show how often predictions come.
FREE: dict[str, Callable[[Extract, random.Random], _Plan | None]] = {
    "approach": _approach,
    "approach again": _approach,
    "approach anew": _approach,
    "wander": _wander,
}


def _over(lead: list[Edge], beyond: list[Edge] | None) -> _Plan | None:
    return None if beyond is None else _Plan([*lead, *beyond])


def _portals(extract: Extract) -> list[Edge]:
    """Return the covered edges that are entered from the open."""
    return [
        edge
        for edge in extract.network.edges.values()
        if extract.cover(edge)
        and any(
            extract.cover(step) is None and not step.is_reverse_of(edge)
            for step in extract.network.arriving.get(edge.begins, ())
        )
    ]


def _before(extract: Extract, dice: random.Random, edge: Edge) -> list[Edge]:
    """Return a way from the open to an edge: the more traffic takes it, the more probably."""
    lead: list[Edge] = []
    left_m = dice.uniform(*_LEAD_M)
    here = edge
    while left_m > 0.0:
        shares = {
            step.id: {o.id: p for o, p in extract.network.onward(step)}.get(here.id, 0.0)
            for step in extract.network.arriving.get(here.begins, ())
            if not step.is_reverse_of(here)
            and extract.cover(step) is None
            # Nobody goes round and round.
            and step.id not in round_of([edge, *reversed(lead)])
        }
        if not any(shares.values()):
            break
        here = extract.network.edges[dice.choices(list(shares), list(shares.values()))[0]]
        lead.insert(0, here)
        left_m -= here.length_m
    return lead


def _onward(
    extract: Extract,
    dice: random.Random,
    edge: Edge,
    *,
    covered: bool = True,
    tail_m: float = _TAIL_M,
    driven: Sequence[Edge] = (),
) -> list[Edge] | None:
    """Return a way from an edge on that ends in the open; `covered`: also through covers.

    None if the drive would end before a portal or inside: it could not show whether it came.
    """
    edges, left_m = [edge], tail_m
    while left_m > 0.0 or extract.cover(edges[-1]):
        step = extract.driven_on(dice, [*driven, *edges])
        if step is None:
            break
        if not covered and extract.cover(step):
            return None
        edges.append(step)
        if not extract.cover(step):
            left_m -= step.length_m
    return None if extract.cover(edges[-1]) else edges


def _neighbours(extract: Extract) -> Iterator[tuple[Edge, float]]:
    """Yield the open edges near covers, with the angle between the two."""
    edges = list(extract.network.edges.values())
    lines = [shapely.LineString([extract.plane.xy(p) for p in edge.line]) for edge in edges]
    tree = shapely.STRtree(lines)
    for number, inside in enumerate(edges):
        if extract.cover(inside) is None:
            continue
        for other in tree.query(lines[number], predicate="dwithin", distance=_BESIDE_M):
            edge = edges[other]
            touches = {edge.begins, edge.ends} & {inside.begins, inside.ends}
            if extract.cover(edge) is None and not touches and edge.length_m > _BESIDE_M:
                turned = turn_deg(
                    heading_deg(inside.line[0], inside.line[-1]),
                    heading_deg(edge.line[0], edge.line[-1]),
                )
                yield edge, turned
