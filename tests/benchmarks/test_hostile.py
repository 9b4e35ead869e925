"""What a run beside attacks comes to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks.experiments.hostile import Beside, summary
from tests.benchmarks.figures import FIGURES

_BULK = Beside(
    goodput_bps=90e6,
    p99_ms=30.0,
    broken=0,
    hub_memory_bytes=40 << 20,
    neighbour_cpu_percent=20.0,
)


def test_an_attack_that_harms_does_not_vanish_among_those_that_do_not() -> None:
    beside = {f"harmless-{number}": _BULK for number in range(9)}
    beside["harmful"] = replace(
        _BULK,
        goodput_bps=45e6,
        p99_ms=130.0,
        broken=2,
        hub_memory_bytes=400 << 20,
        neighbour_cpu_percent=80.0,
    )
    figures = summary(_BULK, beside)
    assert figures == pytest.approx(
        {
            "hostile.goodput": 0.95,
            "hostile.worst-goodput": 0.5,
            "hostile.delay": 10.0,
            "hostile.worst-delay": 100.0,
            "hostile.broken": 2.0,
            "hostile.memory": 400.0,
            "hostile.attacker-cpu": 80.0,
        }
    )
    assert set(figures) <= set(FIGURES)
