from __future__ import annotations

import dataclasses

import pytest

from tests.benchmarks.bench import OURS
from tests.benchmarks.experiments.offload import Run, add_records, loads
from tests.benchmarks.records import Result

_MOVED_S = 20.0


def _first_come_first_served(name: str, seed: int) -> Run:
    """Serve Gold's pages over a link of 10 Mbit/s, whatever Silver does."""
    gold, silver, _ = loads(seed, name)
    free, pages = 0.0, []
    for at in gold:
        free = max(free, at) + 0.08
        pages.append((at, free - at))
    moves = [(_MOVED_S, "satellite")] if name == OURS else []
    return Run(pages, [(at, 0.6) for at in silver], moves, [], [(at, 31.0) for at in gold])


def test_each_class_alone_has_the_same_pages_until_the_load_falls() -> None:
    gold, silver, foreign = loads(7, OURS)
    for name, has_gold in (("underpass-gold-alone", True), ("underpass-satellite", False)):
        alone = loads(7, name)
        ends = max(alone[2]) + 1e-9
        assert alone[0] == ([at for at in gold if at < 40] if has_gold else [])
        assert alone[1] == ([] if has_gold else [at for at in silver if at < 40])
        assert alone[2] == [at for at in foreign if at < ends]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_class_that_is_as_if_alone_takes_what_it_takes_alone(seed: int) -> None:
    result = Result("offload")
    gold_alone = _first_come_first_served("underpass-gold-alone", seed)
    silver_alone = _first_come_first_served("underpass-satellite", seed)
    ours = _first_come_first_served(OURS, seed)
    add_records(result, OURS, [ours], [(gold_alone, silver_alone)])
    medians = {made.id: made.median for made in result.records}
    assert medians["offload.gold"] == pytest.approx(100)
    assert medians["offload.silver"] == pytest.approx(100)
    assert medians["offload.broken"] == 0


def test_a_move_just_before_the_load_falls_leaves_no_figure_without_pages() -> None:
    result = Result("offload")
    gold_alone = _first_come_first_served("underpass-gold-alone", 1)
    silver_alone = _first_come_first_served("underpass-satellite", 1)
    late = dataclasses.replace(
        _first_come_first_served(OURS, 1), moves=[(39.5, "satellite"), (45.0, "terrestrial")]
    )
    add_records(result, OURS, [late], [(gold_alone, silver_alone)])
    assert {made.id for made in result.records} >= {"offload.gold", "offload.silver"}
