from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.experiments import EXPERIMENTS
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.records import Result, load, part_of, quantile, record


def test_p90_is_on_the_worse_side_whichever_way_is_better() -> None:
    values = [float(value) for value in range(1, 102)]
    assert record("object-1mb.g", "x", values).p90 == 91
    assert record("bulk-200mb.g", "x", values).p90 == 11


@pytest.mark.parametrize(
    ("figure", "values", "met"),
    [
        ("object-1mb.g", [0.7, 0.8, 1.3], True),
        ("object-1mb.g", [0.7, 0.8, 1.9], False),
        ("object-1mb.g", [0.9, 0.9, 0.9], False),
        ("bulk-200mb.g", [87.0, 88.0], True),
        ("bulk-200mb.g", [86.0, 86.5], False),
        ("start-up.g", [1.0], None),
        ("unequal.pairs", [*[101.0] * 15, 108.0], True),
        ("unequal.pairs", [*[101.0] * 15, 108.1], False),
        ("road-ahead.krems.map.entry-within", [75.0], True),
        ("road-ahead.krems.map.entry-within", [85.0], True),
        ("road-ahead.krems.map.entry-within", [74.9], False),
        ("road-ahead.krems.map.entry-within", [85.1], False),
        ("road-ahead.krems.rush.entry-within", [50.0], None),
    ],
)
def test_a_target_is_met_by_median_and_p90(
    figure: str, values: list[float], met: bool | None
) -> None:
    assert record(figure, "x", values).met is met


def test_quantiles_interpolate() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([7.0], 0.9) == 7.0


def test_a_part_of_nothing_is_a_failed_run() -> None:
    assert part_of(3.0, 4.0) == 0.75
    assert part_of(3.0, 0.0) == 0.0


def test_a_saved_result_reads_back_the_same(tmp_path: Path) -> None:
    result = Result("object-1mb", [record("object-1mb.g", "x", [1.0], censored_bytes=[5])])
    loaded, machine = load(result.save(tmp_path))
    assert loaded == result
    assert machine["cores"]


def test_every_figure_has_its_own_name_and_every_experiment_a_text() -> None:
    assert all(figure_id == figure.id for figure_id, figure in FIGURES.items())
    assert all(run.__doc__ for run in EXPERIMENTS.values())
