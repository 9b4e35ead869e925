"""The requests sent to the NCC, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.opensand.allocation import Allocation, Profile, Stretch, Version
from underpass_control.opensand.ncc import NccAddressError, ncc_address
from underpass_control.opensand.request import LINE_BYTES, LINES_AT_ONCE, request

T = 1_900_000_000_000


def version(number: int, start_ms: int, **rates: list[tuple[int, int]]) -> Version:
    """Make a plan of 60 s: by terminals `st1`, `st2`, …, the rates and the times they begin."""
    profiles = {}
    for name, steps in rates.items():
        ends = [*(at for at, _ in steps[1:]), 60_000]
        stretches = [
            Stretch(T + start_ms + at, T + start_ms + end, rate)
            for (at, rate), end in zip(steps, ends, strict=True)
        ]
        profiles[int(name[2:])] = Profile(stretches, 64_000)
    return Version(number, T + start_ms, profiles)


def told(allocation: Allocation, at_ms: int) -> list[tuple[int, int]]:
    return [(one.st_id, one.cra_kbps) for one in allocation.poll(T + at_ms)]


def test_each_boundary_is_told_when_it_comes_and_only_what_changes() -> None:
    allocation = Allocation()
    allocation.follow(
        version(
            1,
            0,
            st1=[(0, 500_000), (2_000, 0), (6_000, 900_000)],
            st2=[(0, 500_000)],
            st3=[(0, 400_000), (2_000, 700_000), (6_000, 400_000)],
        )
    )
    assert told(allocation, 0) == [(3, 400), (1, 500), (2, 500)]
    assert allocation.next_ms(T) == T + 2_000
    assert told(allocation, 1_999) == []
    # The blocked terminal's rate falls before the other's rises.
    assert told(allocation, 2_000) == [(1, 1), (3, 700)]
    assert allocation.next_ms(T + 2_000) == T + 6_000
    assert told(allocation, 6_000) == [(3, 400), (1, 900)]


def test_a_new_plan_holds_from_its_start_and_the_old_one_until_then() -> None:
    allocation = Allocation()
    allocation.follow(version(1, 0, st1=[(0, 500_000), (3_000, 600_000)]))
    allocation.follow(version(2, 5_000, st1=[(0, 800_000)]))
    assert told(allocation, 0) == [(1, 500)]
    assert told(allocation, 3_000) == [(1, 600)]
    assert allocation.next_ms(T + 3_000) == T + 5_000
    assert told(allocation, 5_000) == [(1, 800)]


def test_a_stale_plan_leaves_the_guaranteed_rate() -> None:
    allocation = Allocation()
    allocation.follow(version(1, 0, st1=[(0, 500_000)]))
    assert told(allocation, 0) == [(1, 500)]
    assert told(allocation, 60_000) == [(1, 64)]


def test_an_ncc_that_starts_again_is_told_everything() -> None:
    allocation = Allocation()
    allocation.follow(version(1, 0, st1=[(0, 500_000)], st2=[(0, 500_000)]))
    assert len(told(allocation, 0)) == 2
    allocation.renew()
    assert len(told(allocation, 10)) == 2


def test_everything_is_told_again_for_terminals_that_log_on_later() -> None:
    allocation = Allocation()
    allocation.follow(version(1, 0, st1=[(0, 500_000)]))
    assert told(allocation, 0) == [(1, 500)]
    assert told(allocation, 9_999) == []
    assert allocation.next_ms(T + 9_999) == T + 10_000
    assert told(allocation, 10_000) == [(1, 500)]


def test_without_a_plan_nothing_is_told() -> None:
    allocation = Allocation()
    assert told(allocation, 0) == []
    assert allocation.next_ms(T) > T


@given(st.lists(st.integers(0, 60_000_000), min_size=1, max_size=50))
def test_rounding_never_takes_more_than_the_plan_but_for_the_least_rate(rates: list[int]) -> None:
    requests = [request(n, rate) for n, rate in enumerate(rates)]
    for one in requests:
        assert one.cra_kbps >= 1
        assert -1_000 < one.rounding_bps <= 1_000
        assert one.rounding_bps <= 0 or one.planned_bps < 1_000


@given(st.integers(0, 0xFFFF), st.integers(0, 10**12))
def test_every_line_has_the_length_that_the_ncc_reads_whole(st_id: int, rate_bps: int) -> None:
    line = request(st_id, rate_bps).line()
    assert len(line) == LINE_BYTES
    assert 200 % LINE_BYTES == 0
    assert LINES_AT_ONCE * LINE_BYTES < 200
    kind, told_id, cra, rbdc, rbdc_max = map(int, line.decode().split(":"))
    assert (kind, told_id, rbdc, rbdc_max) == (0, st_id, 0, 1)
    # Beyond 16 bits the NCC's counter would wrap to zero.
    assert cra == min(max(rate_bps // 1000, 1), 65_535)


def test_an_address_is_read_and_others_refused() -> None:
    assert ncc_address("opensand://ncc.example") == ("ncc.example", 4998)
    assert ncc_address("opensand://[::1]:5333") == ("::1", 5333)
    for text in ("ncc:4998", "http://ncc", "opensand://", "opensand://ncc:99999", "opensand://n/x"):
        with pytest.raises(NccAddressError):
            ncc_address(text)
