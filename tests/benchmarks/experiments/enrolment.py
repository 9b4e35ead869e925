"""From a bare node to its client's first byte; renewal and revocation through a blockage."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed.enrolled import HELLO, Fleet
from tests.testbed.programs import missing
from tests.testbed.wrong_clock import missing as missing_clock

_RUNS = 10
_BLOCKED_S = 600.0
# The service is killed before the blockage ends, and started again after it.
_KILLED_S = 60.0
_BACK_AFTER_S = 20.0
# The node asks every 5 s, and waits a minute at most for the service's answer.
_WITHIN_S = 90.0
_AGAIN_S = 0.1


def run(settings: Settings) -> Result:
    """Enrol a bare node again and again, then renew and revoke once through a blockage."""
    result = Result("enrolment")
    result.told["underpass"] = "hub, terminal and service on one loopback, HTTPS"
    if result.left_out(missing("underpass")) or result.left_out(missing_clock()):
        return result
    with _fleet() as fleet:
        times = [_first_byte_s(fleet) for _ in range(settings.runs or _RUNS)]
        result.records.append(record("enrolment.first-byte", "underpass", times))
        lost, doubled = _through_a_blockage(fleet)
    result.records.append(record("enrolment.lost", "underpass", [lost]))
    result.records.append(record("enrolment.doubled", "underpass", [doubled]))
    result.notes["measured"] = (
        f"a hop that is blocked for {_BLOCKED_S:.0f} s when a certificate is due and another is "
        f"revoked; the service is killed {_KILLED_S:.0f} s before the end, and comes back "
        f"{_BACK_AFTER_S:.0f} s behind it"
    )
    return result


@contextmanager
def _fleet() -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="underpass-enrolment-"))
    fleet = Fleet(folder)
    try:
        fleet.set_up()
        yield fleet
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


def _first_byte_s(fleet: Fleet) -> float:
    """Return the time from the first command to a client's first bytes, s."""
    shutil.rmtree(fleet.bare, ignore_errors=True)
    fleet.bare.mkdir()
    begun = time.monotonic()
    done = fleet.enroll(fleet.new_token())
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    terminal = fleet.start_node("terminal", fleet.bare)
    if fleet.first_bytes() != HELLO:
        raise RuntimeError("another origin has answered")
    took_s = time.monotonic() - begun
    say(f"enrolment: first byte after {took_s:.1f} s")
    terminal.stop()
    return took_s


def _through_a_blockage(fleet: Fleet) -> tuple[int, int]:
    """Return how many of a renewal and a revocation are lost, and the surplus certificates."""
    shutil.rmtree(fleet.bare, ignore_errors=True)
    fleet.bare.mkdir()
    fleet.enroll_for_renewal()
    pki = fleet.bare / "state" / "pki"
    before, issued = (pki / "node.crt").read_text(), fleet.certificates
    fleet.service.kill()
    terminal = fleet.start_node("terminal", fleet.bare)
    fleet.first_bytes()
    fleet.hold("block")
    begun = time.monotonic()
    fleet.start_service()
    fleet.pki("issue", "--node", "77")
    fleet.control("enrolment", "revoke-certificates", "77")
    time.sleep(max(0.0, begun + _BLOCKED_S - _KILLED_S - time.monotonic()))
    fleet.service.kill()
    time.sleep(_KILLED_S)
    fleet.hold("unblock")
    time.sleep(_BACK_AFTER_S)
    fleet.start_service()
    list_of_authority = (fleet.authority / "ca.crl").read_text()
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        lost = [
            (pki / "node.crt").read_text() == before,
            (pki / "ca.crl").read_text() != list_of_authority,
        ]
        if not any(lost):
            break
        time.sleep(_AGAIN_S)
    terminal.stop()
    return sum(lost), max(0, fleet.certificates - issued - 1)
