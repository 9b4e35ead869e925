from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.benchmarks import cost
from tests.testbed.process import Process


def processes(*of: SimpleNamespace) -> list[Process]:
    return [cast("Process", one) for one in of]


def test_processor_time_is_that_of_all_processes_in_milliseconds() -> None:
    def used(*seconds: float) -> SimpleNamespace:
        told: Iterator[float] = iter(seconds)
        return SimpleNamespace(processor_s=lambda: next(told))

    both = processes(used(1.0, 1.25), used(3.0, 3.5))
    assert cost.spent("cpu", both, lambda: None) == 750.0


def test_what_each_thread_does_is_counted_also_of_one_that_starts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every kernel has this counter: the processor time of a thread, ns.
    monkeypatch.setattr(cost, "_HARDWARE", 1)
    monkeypatch.setattr(cost, "_INSTRUCTIONS", 1)
    if cost.kind() == "cpu":
        pytest.skip("the kernel lets this process count nothing")
    own = processes(SimpleNamespace(pid=os.getpid()))

    def work() -> None:
        sum(range(200_000))

    def in_a_thread() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    def spent(of: Any) -> float:
        return cost.spent("instructions", own, of)

    least = min(spent(work) for _ in range(5))
    assert least > 0
    assert min(spent(in_a_thread) for _ in range(5)) > least / 10


def test_a_machine_without_the_counter_counts_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(cost, "_counter", none)
    assert cost.kind() == "cpu"
    monkeypatch.undo()
    monkeypatch.setattr("platform.machine", lambda: "unknown")
    assert cost.kind() == "cpu"
