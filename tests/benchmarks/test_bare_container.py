from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.bench import Settings
from tests.benchmarks.experiments import bare_container
from tests.benchmarks.experiments.bare_container import START, Way, medians

_UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "underpass.service"


def way_of(*took_s: float) -> Way:
    """Return a way whose steps took so long, s: a download, two commands, and the wait."""

    def times() -> Iterator[float]:
        now_s = 100.0
        for one_s in took_s:
            yield now_s
            now_s += one_s
            yield now_s

    clock = times()
    way = Way(lambda: next(clock))
    with way.step("packages", download=True):
        pass
    with way.step("install", typed=True):
        pass
    with way.step("enroll", typed=True):
        pass
    with way.step("first byte"):
        pass
    return way


def test_only_what_is_typed_counts_as_a_command_and_downloads_do_not_count_as_time() -> None:
    way = way_of(500.0, 8.0, 2.0, 0.5)
    assert way.commands == 2
    assert way.beyond_downloads_s == pytest.approx(10.5)


def test_a_download_that_is_typed_counts_as_a_command_without_its_time() -> None:
    times = iter((0.0, 30.0))
    way = Way(lambda: next(times))
    with way.step("apt-get update", typed=True, download=True):
        pass
    assert (way.commands, way.beyond_downloads_s) == (1, 0)


def test_a_step_that_fails_is_not_taken() -> None:
    way = Way()
    with pytest.raises(RuntimeError, match="refused"), way.step("enroll", typed=True):
        raise RuntimeError("refused")
    assert way.commands == 0


def test_each_step_is_noted_with_its_median() -> None:
    ways = [way_of(1.0, seconds, 2.0, 0.5) for seconds in (7.0, 30.0, 8.0)]
    noted = medians(ways)
    assert noted.split("; ")[:2] == ["packages: 1.0 s", "install: 8.0 s"]


@pytest.mark.parametrize(("user", "told"), [(1000, "root"), (0, "debootstrap")])
def test_where_no_debian_is_made_no_package_is_built(
    monkeypatch: pytest.MonkeyPatch, user: int, told: str
) -> None:
    def no_build(*_places: object) -> None:
        raise AssertionError("the packages are built")

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(bare_container, "missing", lambda *_names: None)
    monkeypatch.setattr(bare_container, "build", no_build)
    result = bare_container.run(Settings())
    assert told in str(result.notes["left out"])
    assert result.records == []


def test_the_terminal_is_started_by_the_commands_of_the_unit() -> None:
    unit = re.findall(r"^ExecStart(?:Pre)?=/usr/local/bin/(.+)$", _UNIT.read_text(), re.M)
    assert re.findall(r"runuser -u underpass -- ([^&]*[^& ])", START) == unit
