"""A request of the interface between OpenSAND's NCC and a policy enforcement point, as text.

A line is `type:st_id:cra:rbdc:rbdc_max`, decimal, rates in kbit/s:

- `type` 1 (allocation) is applied after the NCC's `pep_alloc_delay`, 0 (release) at once; what is
  applied is the same. Requests here come when they are due, so all are of type 0.
- `cra` and `rbdc_max` of 0 leave the present value; `rbdc` of 0 asks for nothing.
- The NCC keeps rates in 16 bits, and reads up to 200 bytes at a time, taking each piece for whole
  lines: so all lines have one length that divides 200, by leading zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

_RELEASE = 0
MOST_KBPS = 0xFFFF
MOST_ST_ID = 0xFFFF
LINE_BYTES = 25
# The NCC reads this much at once, as text that needs a terminating byte, so send less.
_READ_BYTES = 200
LINES_AT_ONCE = (_READ_BYTES - 1) // LINE_BYTES
_BPS_PER_KBPS = 1_000


@dataclass(frozen=True, slots=True)
class Request:
    """A satellite terminal's rate from now on: `cra_kbps` constantly, and nothing beyond."""

    st_id: int
    cra_kbps: int
    # What the plan gives it, bit/s.
    planned_bps: int

    @property
    def rounding_bps(self) -> int:
        """Its rate beyond the plan's, bit/s; negative if it is less."""
        return self.cra_kbps * _BPS_PER_KBPS - self.planned_bps

    def line(self) -> bytes:
        """Return it as it is sent."""
        # RBDC on top of the constant rate would be more than planned: it is held at its least.
        return b"%04d:%05d:%05d:0:00001\n" % (_RELEASE, self.st_id, self.cra_kbps)


def request(st_id: int, planned_bps: int) -> Request:
    """Return the request for a rate.

    Rounded down, so that the sum never exceeds the capacity; but 1 kbit/s at the least, since 0
    would leave things as they are.
    """
    whole = planned_bps // _BPS_PER_KBPS
    return Request(st_id, min(max(whole, 1), MOST_KBPS), planned_bps)
