"""Turn restrictions: what a relation says, and which ways may follow which."""

from __future__ import annotations

from dama.prediction.network import Network, Way
from dama.prediction.turns import (
    Member,
    TurnRestriction,
    Turns,
    WayRestriction,
    WayTurns,
    obeys,
    turn_restriction,
)

NO = {"type": "restriction", "restriction": "no_left_turn"}
LEFT = [Member("w", 1, "from"), Member("n", 7, "via"), Member("w", 2, "to")]


def test_a_relation_names_ways_and_a_node() -> None:
    assert turn_restriction(NO, LEFT) == TurnRestriction((1,), 7, (2,))
    only = NO | {"restriction": "only_straight_on"}
    assert turn_restriction(only, LEFT) == TurnRestriction((1,), 7, (2,), only=True)


def test_a_relation_may_go_by_way_of_ways() -> None:
    over = [Member("w", 3, "via"), Member("w", 4, "via")]
    by_ways = [Member("w", 1, "from"), *over, Member("w", 2, "to")]
    assert turn_restriction(NO, by_ways) == WayRestriction((1,), (3, 4), (2,))
    assert turn_restriction(NO, [*by_ways, Member("n", 7, "via")]) is None


def test_what_is_no_restriction_says_nothing() -> None:
    assert turn_restriction(NO, LEFT[:2]) is None
    assert turn_restriction(NO, [*LEFT, Member("n", 8, "via")]) is None
    assert turn_restriction(NO, [*LEFT] * 100) is None
    assert turn_restriction({"type": "restriction", "restriction:hgv": "no_entry"}, LEFT) is None
    assert turn_restriction(NO | {"except": "bus;motor_vehicle"}, LEFT) is None


def test_it_holds_at_its_node_only() -> None:
    turns = Turns([TurnRestriction((1,), 7, (2,)), TurnRestriction((4,), 7, (5,), only=True)])
    assert not turns.allow(1, 7, 2)
    assert turns.allow(1, 7, 3)
    assert turns.allow(1, 8, 2)
    assert turns.allow(4, 7, 5)
    assert not turns.allow(4, 7, 2)
    assert turns.allow(4, 8, 2)


def test_who_may_not_turn_round_may_go_on_along_the_road() -> None:
    turns = Turns([TurnRestriction((1,), 7, (1,))])
    assert turns.allow(1, 7, 1)
    assert turns.allow(1, 7, 2)


def test_who_leaves_the_ways_of_a_restriction_has_nothing_more_to_obey() -> None:
    turns = WayTurns([WayRestriction((1,), (3, 4), (2,))])
    on_3 = turns.after(frozenset(), 1, 3)
    assert obeys(on_3, 3, 2, [2, 4])
    on_4 = turns.after(on_3, 3, 4)
    assert not obeys(on_4, 4, 2, [2, 5])
    assert obeys(on_4, 4, 5, [2, 5])
    assert turns.after(on_4, 4, 4) == on_4
    assert turns.after(on_3, 3, 5) == turns.after(on_4, 4, 5) == frozenset()
    assert turns.after(frozenset(), 7, 3) == frozenset()


def test_where_the_only_turn_allowed_does_not_lead_off_all_are() -> None:
    turns = WayTurns([WayRestriction((1,), (3,), (2,), only=True)])
    on_3 = turns.after(frozenset(), 1, 3)
    assert not obeys(on_3, 3, 5, [2, 5])
    assert obeys(on_3, 3, 5, [5, 6])


def test_restrictions_add_no_more_roads_than_the_map_has() -> None:
    tags = {"highway": "primary"}
    nodes = [(n, (0.001 * n, 46.0)) for n in range(40)]
    main = Way(1, tuple(n for n, _ in nodes), tuple(place for _, place in nodes), tags)
    sides = [
        Way(100 + n, (n, 900 + n), ((0.001 * n, 46.0), (0.001 * n, 46.1)), tags) for n in range(40)
    ]
    roads = len(Network([main, *sides]).edges)
    hostile = [WayRestriction((side.id,), (1,), (100,)) for side in sides] * 50
    edges = Network([main, *sides], hostile).edges
    assert roads < len(edges) <= 2 * roads
