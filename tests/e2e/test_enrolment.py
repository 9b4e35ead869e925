"""A bare node joins the fleet by one token, over HTTPS that the token authenticates.

Everything is on the loopback of this machine: the control service with its own certificate, a hub,
and a terminal that begins as an empty folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256

import pytest

from tests.testbed.enrolled import HELLO, HUB, TERMINAL, Fleet, read, run
from tests.testbed.node import LocalApi
from tests.testbed.programs import built
from tests.testbed.wrong_clock import missing as missing_clock

# Each test starts several Python programs, which takes long on a busy machine.
pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A service and a hub for all tests of this file."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        fleet.set_up()
        yield fleet
    finally:
        fleet.close()


@pytest.fixture(autouse=True)
def _bare(fleet: Fleet) -> None:
    shutil.rmtree(fleet.bare, ignore_errors=True)
    fleet.bare.mkdir()


def test_one_command_makes_a_bare_node_a_terminal_whose_clients_reach_origins(
    fleet: Fleet,
) -> None:
    token = fleet.new_token()
    done = fleet.enroll(token)
    assert done.returncode == 0, done.stderr
    assert fleet.left == [
        "node.toml",
        "state",
        "state/pki",
        *(f"state/pki/{name}" for name in ("ca.crl", "ca.crt", "node.crt", "node.key")),
    ]
    assert (fleet.bare / "state/pki/node.key").stat().st_mode & 0o777 == 0o600
    key = (fleet.bare / "state/pki/node.key").read_text().splitlines()[1]
    log_and_database = (fleet.dir / "control.db", fleet.dir / "service.log")
    assert not any(key.encode() in one.read_bytes() for one in log_and_database)
    assert not list(fleet.authority.rglob(f"nodes/{TERMINAL}/node.key"))
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == HELLO
    terminal.stop()
    # The token was used, so another machine gets nothing with it.
    shutil.rmtree(fleet.bare)
    again = fleet.enroll(token)
    assert again.returncode != 0
    assert "another key" in again.stderr
    assert fleet.left == []


def test_a_service_without_the_tokens_fingerprint_is_not_shown_the_token(fleet: Fleet) -> None:
    token = fleet.new_token()
    # A character in the middle of the fingerprint.
    wrong = token[:20] + ("A" if token[20] != "A" else "B") + token[21:]
    done = fleet.enroll(wrong)
    assert done.returncode != 0
    assert "fingerprint" in done.stderr
    assert not (fleet.bare / "node.toml").exists()
    listed = fleet.control("enrolment", "list", "--json")
    assert "used" not in json.loads(listed)[-1]
    assert fleet.enroll(token).returncode == 0


def test_nothing_that_is_there_is_replaced_without_force(fleet: Fleet) -> None:
    (fleet.bare / "node.toml").write_text("mine\n")
    refused = fleet.enroll(fleet.new_token())
    assert refused.returncode != 0
    assert "--force" in refused.stderr
    assert fleet.left == ["node.toml"]
    assert (fleet.bare / "node.toml").read_text() == "mine\n"
    forced = fleet.enroll(fleet.new_token(), "--force")
    assert forced.returncode == 0, forced.stderr


def test_a_service_that_is_away_costs_another_try_and_no_token(fleet: Fleet) -> None:
    token = fleet.new_token()
    fleet.service.stop()
    away = fleet.enroll(token)
    assert away.returncode != 0
    assert not (fleet.bare / "node.toml").exists()
    fleet.start_service()
    done = fleet.enroll(token)
    assert done.returncode == 0, done.stderr


def test_a_node_that_was_cut_short_is_completed_by_the_same_command(fleet: Fleet) -> None:
    token = fleet.new_token()
    assert fleet.enroll(token).returncode == 0
    whole = fleet.left
    # As a kill leaves it before the configuration and the certificate are written: the key is
    # still the pending one.
    key = fleet.bare / "state/pki/node.key"
    (fleet.bare / "node.toml").unlink()
    (fleet.bare / "state/pki/node.crt").unlink()
    shutil.copy(key, fleet.bare / pending(token))
    done = fleet.enroll(token)
    assert done.returncode == 0, done.stderr
    assert fleet.left == whole


def test_wherever_it_is_killed_the_node_is_bare_or_whole_and_the_same_command_completes_it(
    fleet: Fleet,
) -> None:
    token = fleet.new_token()
    config = fleet.bare / "node.toml"
    for delay_s in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5):
        with fleet.enrolling(token) as running:
            with suppress(subprocess.TimeoutExpired):
                running.wait(delay_s)
            running.kill()
        if config.exists():
            run(built("underpass"), "check-config", "--config", str(config))
    if not config.exists() or list(fleet.bare.glob(".enrolment-*")):
        done = fleet.enroll(token)
        assert done.returncode == 0, done.stderr
    run(built("underpass"), "check-config", "--config", str(config))
    (own,) = [
        one
        for one in json.loads(fleet.control("enrolment", "list", "--json"))[-1:]
        if "used" in one
    ]
    assert own["node"] == TERMINAL


@pytest.mark.skipif(missing_clock() is not None, reason=missing_clock() or "")
def test_a_node_renews_its_certificate_in_time_and_its_streams_live_on(fleet: Fleet) -> None:
    past = fleet.dir / "past"
    past.touch()
    try:
        assert fleet.enroll(fleet.new_token()).returncode == 0
    finally:
        past.unlink()
    certificate = fleet.bare / "state/pki/node.crt"
    before, key = certificate.read_text(), (fleet.bare / "state/pki/node.key").read_text()
    # While the service is away, the node goes on with its configuration and certificate.
    fleet.service.stop()
    terminal = fleet.start_node("terminal", fleet.bare)
    with fleet.connect() as client:
        assert read(client, len(HELLO)) == HELLO
        told_before = terminal.log_path.read_text().count("certificates read again")
        fleet.start_service()
        terminal.wait_until(
            lambda: terminal.log_path.read_text().count("certificates read again") > told_before
        )
        assert certificate.read_text() != before
        assert (fleet.bare / "state/pki/node.key").read_text() == key
        client.sendall(b"still there")
        assert read(client, 11) == b"still there"
    terminal.stop()


@pytest.mark.skipif(missing_clock() is not None, reason=missing_clock() or "")
def test_through_the_hop_a_renewal_survives_blockage_and_killed_service_and_is_no_second_one(
    fleet: Fleet,
) -> None:
    fleet.enroll_for_renewal()
    certificate = fleet.bare / "state/pki/node.crt"
    before, issued = certificate.read_text(), fleet.certificates
    fleet.service.kill()
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == HELLO
    fleet.hold("block")
    # The requests of three intervals wait for the end of the blockage, then for the service.
    time.sleep(15)
    fleet.hold("unblock")
    time.sleep(6)
    assert certificate.read_text() == before
    fleet.start_service()
    terminal.wait_until(lambda: certificate.read_text() != before)
    assert fleet.certificates == issued + 1
    folder = fleet.authority / "nodes" / str(TERMINAL)
    assert certificate.read_text() == (folder / "node.crt").read_text()
    # After another interval no more certificates are issued, and the new one serves clients.
    time.sleep(6)
    assert fleet.certificates == issued + 1
    assert fleet.first_bytes() == HELLO
    terminal.stop()


def test_through_the_hop_a_revocation_reaches_the_terminal(fleet: Fleet) -> None:
    assert fleet.enroll(fleet.new_token(through_hub=True)).returncode == 0
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == HELLO
    fleet.pki("issue", "--node", "77")
    fleet.control("enrolment", "revoke-certificates", "77")
    issued, own = fleet.authority / "ca.crl", fleet.bare / "state/pki/ca.crl"
    terminal.wait_until(lambda: own.read_text() == issued.read_text())
    terminal.stop()


def test_a_new_terminal_reaches_the_hubs_list_by_itself_and_leaves_it_again(
    fleet: Fleet,
) -> None:
    listed = fleet.hub_dir / "state" / "terminals.toml"

    def names() -> list[str]:
        paths = LocalApi(fleet.hub_dir / "api.sock").get("/v1/status")["paths"]
        return [path["name"] for path in paths]

    before = names()
    fleet.control("terminal", "set", "11", "--beam", "east", "--name", "New", "--gateway", str(HUB))
    fleet.hub.wait_until(lambda: len(names()) > len(before))
    # The terminal that is configured by hand is listed once.
    assert "node = 11" in listed.read_text()
    assert len(names()) == len(before) + 1
    fleet.control("terminal", "delete", "11")
    fleet.hub.wait_until(lambda: names() == before)


def test_a_revoked_terminal_loses_its_sessions_and_is_enrolled_again_by_another_key(
    fleet: Fleet,
) -> None:
    assert fleet.enroll(fleet.new_token()).returncode == 0
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == HELLO
    assert fleet.has_session()
    fleet.control("enrolment", "revoke-certificates", str(TERMINAL))
    fleet.hub.wait_until(lambda: not fleet.has_session())
    terminal.stop()
    done = fleet.enroll(fleet.new_token(), "--force")
    assert done.returncode == 0, done.stderr
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == HELLO
    terminal.stop()


def pending(token: str) -> str:
    return f".enrolment-{sha256(token.encode()).hexdigest()[:16]}.key"
