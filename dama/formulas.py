"""The paper's four formulas, exact.

Source: Oh, Kim and Kim, *Adaptive Borrow-Repay Resource Allocation on Disruptive Satellite
Communication with PEP*, equations 1 to 4. One of N sessions with demand, each at the rate R, will
be blocked for T_t, in T_r from now. Before that the others lend it the amount that it cannot use
while blocked, and they get it back during the blockage. Equation 2 gives a rate and equation 3 an
amount; volume is conserved: (N - 1) · D_r = D_u.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

_MS_PER_S = 1000


class FormulaError(ValueError):
    """An argument for which a formula has no meaning."""


def unused_bits(rate_bps: Fraction | int, blocked_ms: int) -> Fraction:
    """Return D_u = R·T_t, the bits that the session cannot use while blocked (equation 1).

    Args:
        rate_bps: R, the session's rate in bit/s.
        blocked_ms: T_t, the time in the road tunnel in ms.

    Raises:
        FormulaError: if either is negative.
    """
    if rate_bps < 0:
        raise FormulaError(f"a rate of {rate_bps} bit/s: it cannot be negative")
    if blocked_ms < 0:
        raise FormulaError(f"blocked for {blocked_ms} ms: it cannot be negative")
    return Fraction(rate_bps) * blocked_ms / _MS_PER_S


def borrowed_bps(
    rate_bps: Fraction | int, blocked_ms: int, lead_ms: int, sessions: int
) -> Fraction:
    """Return D_b = R·T_t / (T_r·(N - 1)), the rate that each other session lends (equation 2).

    Args:
        rate_bps: R, the session's rate in bit/s.
        blocked_ms: T_t, the time in the road tunnel in ms.
        lead_ms: T_r, the time from recognition to entry in ms, during which each lends.
        sessions: N, the sessions with demand, the blocked one included.

    Raises:
        FormulaError: if there is no time or nobody to borrow from, or a negative argument.
    """
    if lead_ms <= 0:
        raise FormulaError(f"{lead_ms} ms until entry: there is no time to borrow in")
    return repaid_bits(rate_bps, blocked_ms, sessions) * _MS_PER_S / lead_ms


def repaid_bits(rate_bps: Fraction | int, blocked_ms: int, sessions: int) -> Fraction:
    """Return D_r = R·T_t / (N - 1) = D_b·T_r, the bits repaid to each other session (equation 3).

    Args:
        rate_bps: R, the session's rate in bit/s.
        blocked_ms: T_t, the time in the road tunnel in ms, within which it is repaid.
        sessions: N, the sessions with demand, the blocked one included.

    Raises:
        FormulaError: if there is nobody to borrow from, or a negative argument.
    """
    if sessions < 2:
        raise FormulaError(f"{sessions} sessions: it takes two to borrow")
    return unused_bits(rate_bps, blocked_ms) / (sessions - 1)


def jain_index(throughputs: Sequence[Fraction | float]) -> Fraction:
    """Return Jain's index f = (Σ t_i)² / (N·Σ t_i²), exact (equation 4).

    It is 1 when all are equal, also when all are 0, and 1/N when one has everything.
    Source: Jain, Chiu and Hawe, *A Quantitative Measure of Fairness and Discrimination for
    Resource Allocation in Shared Computer Systems*, DEC-TR-301, 1984.

    Args:
        throughputs: t_i, all in the same unit.

    Raises:
        FormulaError: if there are none, or one is negative or not finite.
    """
    if not throughputs:
        raise FormulaError("no throughputs: their fairness has no meaning")
    try:
        exact = [Fraction(throughput) for throughput in throughputs]
    except (ValueError, OverflowError) as error:
        raise FormulaError("a throughput is not a finite number") from error
    if min(exact) < 0:
        raise FormulaError("a throughput is negative")
    squares = len(exact) * sum(throughput**2 for throughput in exact)
    return sum(exact, Fraction()) ** 2 / squares if squares else Fraction(1)
