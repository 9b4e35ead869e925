from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.benchmarks.experiments.flows import FlowError, run_flows, steady_bps
from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer


def ending_with(error: str | None) -> Access:
    moved = SimpleNamespace(download=lambda size, *_: Transfer(size, error=error))
    return cast("Access", moved)


def test_a_flow_that_gets_nothing_in_its_time_counts_with_nothing() -> None:
    [flow] = run_flows([ending_with("TimeoutError: the run's time is over")], 25.0, 1)
    assert steady_bps(flow, 25.0) == 0


@pytest.mark.parametrize("error", [None, "ConnectionResetError: reset"])
def test_a_flow_that_ends_early_is_an_error(error: str | None) -> None:
    with pytest.raises(FlowError):
        run_flows([ending_with(error)], 25.0, 1)
