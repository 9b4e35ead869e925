"""Turn restrictions of OpenStreetMap: which way may not follow which.

A restriction applies at a junction, or at the end of one or more ways that were entered from a
certain way: for example, cars that came onto a bridge by a slip road may not turn left behind it.

https://wiki.openstreetmap.org/wiki/Relation:restriction
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

# The tags of restrictions for all vehicles, or for cars in particular.
_KEYS = ("restriction", "restriction:motorcar")
# An exception of one of these applies to cars.
_CARS = frozenset({"motorcar", "motor_vehicle", "vehicle"})
# A relation has three members, or some more if it forbids an entry or an exit. One with more than
# this does not describe a junction.
_MOST_MEMBERS = 50


class Member(NamedTuple):
    """A member of a relation: `kind` is `n` (node), `w` (way) or `r` (relation)."""

    kind: str
    ref: int
    role: str


@dataclass(frozen=True, slots=True)
class TurnRestriction:
    """No vehicle may turn from these ways at this node to those; with `only`, to no others."""

    from_ways: tuple[int, ...]
    via_node: int
    to_ways: tuple[int, ...]
    only: bool = False


@dataclass(frozen=True, slots=True)
class WayRestriction:
    """No vehicle may go from these ways over `via_ways` to those; with `only`, to no others."""

    from_ways: tuple[int, ...]
    via_ways: tuple[int, ...]
    to_ways: tuple[int, ...]
    only: bool = False


Restriction: TypeAlias = TurnRestriction | WayRestriction


def turn_restriction(tags: Mapping[str, str], members: Sequence[Member]) -> Restriction | None:
    """Return what a relation forbids to a car, None if it forbids nothing.

    Restrictions at certain hours and for other vehicles are ignored. The ways between are taken in
    the order in which the relation names them.
    """
    rule = next((tags[key] for key in _KEYS if key in tags), "")
    excepted = {kind.strip() for kind in tags.get("except", "").split(";")}
    if (
        tags.get("type") != "restriction"
        or not rule.startswith(("no_", "only_"))
        or excepted & _CARS
        or len(members) > _MOST_MEMBERS
    ):
        return None
    by_role: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for member in members:
        by_role[member.kind, member.role].append(member.ref)
    came, goes, via = by_role["w", "from"], by_role["w", "to"], by_role["n", "via"]
    over, only = by_role["w", "via"], rule.startswith("only_")
    if not came or not goes:
        return None
    if over and not via:
        return WayRestriction(tuple(came), tuple(over), tuple(goes), only)
    if len(via) == 1 and not over:
        return TurnRestriction(tuple(came), via[0], tuple(goes), only)
    return None


class Turns:
    """Which ways may follow which, by the restrictions at junctions."""

    def __init__(self, restrictions: Iterable[TurnRestriction] = ()) -> None:
        self._forbidden: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._only: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for one in restrictions:
            kept = self._only if one.only else self._forbidden
            for way in one.from_ways:
                kept[way, one.via_node].update(one.to_ways)

    def allow(self, from_way: int, via_node: int, to_way: int) -> bool:
        """Tell whether a vehicle may go on from a way to another at a node.

        Going on along the same way is always allowed: a restriction that names one way twice is
        about turning round.
        """
        key = from_way, via_node
        if from_way == to_way and to_way in self._forbidden.get(key, ()):
            return True
        if key in self._only and to_way not in self._only[key]:
            return False
        return to_way not in self._forbidden.get(key, ())


class Trail(NamedTuple):
    """A way restriction that a vehicle has begun: the ways still to come, and the turn after them.

    That turn is forbidden; with `only`, every other one is.
    """

    over: tuple[int, ...]
    to_ways: tuple[int, ...]
    only: bool


Trails: TypeAlias = frozenset[Trail]
NO_TRAILS: Trails = frozenset()


class WayTurns:
    """Which ways may follow, by restrictions that go by way of other ways.

    Where a vehicle may turn depends on where it came from. That is its trails; each way that it
    takes begins, continues or ends some.
    """

    def __init__(self, restrictions: Iterable[WayRestriction] = ()) -> None:
        self._begun: defaultdict[tuple[int, int], set[Trail]] = defaultdict(set)
        for one in restrictions:
            for way in one.from_ways:
                trail = Trail(one.via_ways[1:], one.to_ways, one.only)
                self._begun[way, one.via_ways[0]].add(trail)
        self.from_ways = frozenset(way for way, _ in self._begun)

    def after(self, trails: Trails, from_way: int, to_way: int) -> Trails:
        """Return the trails of a vehicle that goes on from a way to another, or along it."""
        if from_way == to_way or not self._begun:
            return trails
        gone_on = {
            trail._replace(over=trail.over[1:]) for trail in trails if to_way in trail.over[:1]
        }
        return NO_TRAILS.union(gone_on, self._begun.get((from_way, to_way), ()))


def obeys(trails: Trails, from_way: int, to_way: int, choices: Collection[int]) -> bool:
    """Tell whether trails allow the turn from a way to another; `choices` are all ways ahead."""
    for trail in trails:
        if trail.over or from_way == to_way:
            continue
        if trail.only and not set(choices).isdisjoint(trail.to_ways):
            if to_way not in trail.to_ways:
                return False
        elif not trail.only and to_way in trail.to_ways:
            return False
    return True
