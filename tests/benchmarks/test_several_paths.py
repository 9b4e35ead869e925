from __future__ import annotations

import pytest

from tests.benchmarks.experiments.several_paths import (
    SATELLITE,
    SILENCES,
    SILENT_BYTES,
    TERRESTRIAL,
    gaps_in_silences_ms,
    gaps_of,
    longest_gap_ms,
)
from tests.benchmarks.figures import FIGURES
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


def test_each_silence_of_the_satellite_has_its_own_longest_gap() -> None:
    first, second = SILENCES
    times = [at / 10 for at in range(1, 110)]
    silent = [(first.begin_s + 0.25, 0.5), (second.begin_s + 0.25, 0.3), (first.end_s + 1, 1.0)]
    for begin_s, length_s in silent:
        times = [at for at in times if not begin_s < at < begin_s + length_s]
    curve = [(at, round(at * 1e6)) for at in times]
    done = Transfer(SILENT_BYTES, bytes=SILENT_BYTES, last_byte_s=curve[-1][0], curve=curve)
    gaps = gaps_in_silences_ms(done, 120.0)
    assert gaps == pytest.approx([600, 400], abs=101)
    broken = Transfer(SILENT_BYTES, bytes=1, error="TimeoutError", curve=curve[:20])
    assert min(gaps_in_silences_ms(broken, 120.0)) > 100_000


def test_a_download_lasts_until_the_last_silence_of_the_satellite_is_over() -> None:
    # The terrestrial path never fails; a silence of one direction leaves no data through either.
    terrestrial_bps = TERRESTRIAL.forward.rate_bps or 0
    satellite_bps = SATELLITE.forward.rate_bps or 0
    over_s = SILENCES[-1].end_s
    silent_s = sum(silence.end_s - silence.begin_s for silence in SILENCES)
    most_bits = over_s * terrestrial_bps + (over_s - silent_s) * satellite_bps
    assert most_bits / 8 < SILENT_BYTES
    targets = {FIGURES[silence.figure].target for silence in SILENCES}
    assert targets == {1000 * TERRESTRIAL.rtt_s + 150}
