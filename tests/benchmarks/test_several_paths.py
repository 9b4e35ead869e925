from __future__ import annotations

import pytest

from tests.benchmarks.experiments.several_paths import gaps_of, longest_gap_ms
from tests.testbed.client.transfer import Transfer

_STEADY = [(at / 10, at) for at in range(1, 151)]


def test_a_download_that_never_goes_on_has_waited_until_its_deadline() -> None:
    broken = Transfer(1000, bytes=150, error="TimeoutError", curve=_STEADY)
    assert longest_gap_ms(gaps_of(broken, 120.0), 15.0, 1e9) == pytest.approx(105_000)


def test_a_download_that_goes_on_and_ends_has_only_its_gaps() -> None:
    done = Transfer(1000, bytes=1000, last_byte_s=17.0, curve=[*_STEADY, (15.7, 160), (17.0, 1000)])
    assert longest_gap_ms(gaps_of(done, 120.0), 15.0, 1e9) == pytest.approx(1300)


def test_a_download_of_which_nothing_comes_waits_all_the_time() -> None:
    nothing = Transfer(1000, error="refused")
    assert longest_gap_ms(gaps_of(nothing, 120.0), 15.0, 1e9) == pytest.approx(120_000)


def test_a_gap_counts_where_some_of_it_lies_within() -> None:
    gaps = [(9.0, 9.5), (13.9, 17.0), (20.0, 20.1)]
    assert longest_gap_ms(gaps, 14.0, 16.0) == pytest.approx(3100)
    assert longest_gap_ms(gaps, 10.0, 12.0) == 0
