"""The figures of enrolment."""

from __future__ import annotations

from tests.benchmarks.figure import Figure

_THROUGH = "renewal and revocation, a blockage of 10 min and a killed service"

ENROLMENT = (
    Figure("enrolment.first-byte", "from a bare node to a client's first byte", "s", 60.0),
    Figure("enrolment.lost", f"{_THROUGH}: lost", "", 0.0),
    Figure("enrolment.doubled", f"{_THROUGH}: doubled", "", 0.0),
)
