"""A hostile terminal with a genuine certificate: what it achieves, and its effect on others.

`swarm hostile` tries its attacks from one terminal's place while another one, beside it,
downloads. The hub's view is read from its metrics, the effect on others from their downloads.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses, ports
from tests.testbed.client.transfer import Transfer, download, request
from tests.testbed.node import HUB_NODE, TCPCL_PORT, Options, Pair, terminal_node
from tests.testbed.programs import built
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.swarm

_HOSTILE, _HONEST, _ABSENT = 0, 1, 2
# The most memory that the hub may use, under any one attack and under all of them together. One
# terminal may fill its share of the store, its streams' windows and its sessions.
_MEMORY_BYTES = 768 << 20
_FOREIGN_LIFETIME_S = 4
# What the attack of streams for foreign clients opens.
_FOREIGN_STREAMS = 1_000


@dataclass
class Attacks:
    """The hub under attack, and the reports of `swarm hostile`."""

    pair: Pair[Testbed]
    reports: list[dict[str, Any]] = field(default_factory=list)

    def run(self, *names: str, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Try attacks, all if none is named; return their reports."""
        done = subprocess.run(
            self.argv(*names, "--seconds", str(seconds)),
            capture_output=True,
            text=True,
            timeout=600 + seconds,
            check=False,
        )
        reports = [json.loads(line) for line in done.stdout.splitlines()]
        self.reports += reports
        assert done.returncode == 0, done.stderr + done.stdout
        return reports

    def argv(self, *arguments: str) -> list[str]:
        """Return the command line, in the hostile terminal's place."""
        testbed = self.pair.testbed
        return testbed.terminals[_HOSTILE].node.argv(
            built("swarm"),
            "hostile",
            "--hub",
            f"{addresses.HUB_SAT}:{TCPCL_PORT}",
            "--pki",
            str(testbed.dir / "pki"),
            "--hub-node",
            str(HUB_NODE),
            "--node",
            str(terminal_node(_HOSTILE)),
            "--victim",
            str(terminal_node(_HONEST)),
            "--absent",
            str(terminal_node(_ABSENT)),
            "--origin",
            f"{addresses.ORIGIN}:80",
            "--foreign-client",
            f"{addresses.client(_HONEST)}:40000",
            *arguments,
        )

    def metric(self, name: str) -> float:
        """Return a metric of the hub, summed over its labels."""
        metrics = self.pair.hub.api.metrics()
        return sum(value for key, value in metrics.items() if key.partition("{")[0] == name)

    def download(self, size: int, *, deadline_s: float = 60.0) -> Transfer:
        """Download through the honest terminal."""
        client = self.pair.testbed.terminals[_HONEST].client
        return download(
            client,
            addresses.ORIGIN,
            size,
            route=self.pair.socks5(_HONEST),
            deadline_s=deadline_s,
        )

    def honest_log(self) -> str:
        """Return the honest terminal's log."""
        return self.pair.terminals[_HONEST].process.log_path.read_text(errors="replace")

    @contextmanager
    def honest_downloads(self) -> Iterator[list[Transfer]]:
        """Keep downloading in the meantime, one after the other on each of four clients."""
        stop, done = threading.Event(), list[Transfer]()

        def again() -> None:
            while not stop.is_set():
                done.append(self.download(300_000))

        clients = [threading.Thread(target=again) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            yield done
        finally:
            stop.set()
            for client in clients:
                client.join(90)

    @contextmanager
    def peak_memory(self) -> Iterator[Callable[[], int]]:
        """Sample the hub's memory; yield a function that returns the peak so far, in bytes."""
        stop, most = threading.Event(), [0]

        def sample() -> None:
            while not stop.wait(0.1):
                most[0] = max(most[0], self.pair.hub.process.resident_bytes())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield lambda: most[0]
        finally:
            stop.set()
            sampler.join(10)


@pytest.fixture(scope="module")
def attacks() -> Iterator[Attacks]:
    """A hub with a hostile terminal, an honest one, and one that is switched off."""
    hub = {
        "relay": [{"between": [terminal_node(_HOSTILE), terminal_node(_ABSENT)]}],
        "custody": {"foreign_lifetime_s": _FOREIGN_LIFETIME_S},
    }
    with Testbed(NEAR, terminals=3) as testbed:
        pair = Pair(testbed, Options(hub=hub))
        for index in (_HOSTILE, _ABSENT):
            pair.terminals[index].process.kill()
        pair.hub.process.wait_until(lambda: not pair.hub.carries(2))
        yield Attacks(pair)


@pytest.fixture
def where_origins_are_told_clients() -> Iterator[Attacks]:
    """A hub that tells origins the clients' addresses, with a hostile and an honest terminal."""
    dial = {"origin_source": "proxy-protocol"}
    with Testbed(NEAR, terminals=2) as testbed:
        pair = Pair(testbed, Options(hub={"edge": {"dial": dial}}))
        pair.terminals[_HOSTILE].process.kill()
        pair.hub.process.wait_until(lambda: not pair.hub.carries(2))
        yield Attacks(pair)


def _names(expected: str) -> list[str]:
    listed = subprocess.run(
        [built("swarm"), "hostile", "--list"], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split("\t") for line in listed.splitlines())
    return [name for name, kind in rows if kind.lower() == expected]


def test_each_forgery_is_refused_and_counted(attacks: Attacks) -> None:
    for name in _names("forged"):
        before = attacks.metric("underpass_forged_bundles_total")
        (report,) = attacks.run(name)
        assert report["as_expected"], report
        counted = attacks.metric("underpass_forged_bundles_total") - before
        assert counted == report["answers"]["refused"], report


def test_streams_for_another_terminals_clients_are_refused_and_counted(
    where_origins_are_told_clients: Attacks,
) -> None:
    attacks = where_origins_are_told_clients
    (report,) = attacks.run("foreign-clients")
    assert set(report["answers"]) == {"taken"}, report

    def counted() -> bool:
        return attacks.metric("underpass_foreign_clients_total") == _FOREIGN_STREAMS

    attacks.pair.hub.process.wait_until(counted)
    status, body = request(
        attacks.pair.testbed.terminals[_HONEST].client,
        addresses.ORIGIN,
        "/request",
        route=attacks.pair.socks5(_HONEST),
        port=ports.HTTP_PROXY_PROTOCOL,
    )
    assert status == 200
    assert json.loads(body)["peer"].split(" ")[0] == addresses.client(_HONEST)


def test_what_names_nobody_is_taken_and_changes_nothing(attacks: Attacks) -> None:
    before = attacks.metric("underpass_forged_bundles_total")
    reports = attacks.run(*_names("harmless"))
    assert all(report["as_expected"] for report in reports), reports
    assert attacks.metric("underpass_forged_bundles_total") == before
    restarted = f"peer={terminal_node(_HONEST)} incarnation="
    assert restarted not in attacks.pair.hub.process.log_path.read_text()
    assert attacks.download(100_000).complete


def test_what_is_no_bundle_is_refused(attacks: Attacks) -> None:
    reports = attacks.run(*_names("refused"))
    assert all(report["as_expected"] for report in reports), reports


def test_a_foreign_report_to_costs_the_report_alone(attacks: Attacks) -> None:
    (report,) = attacks.run("report-to")
    assert report["as_expected"], report
    # Everything that the hub sends the terminal from now on comes after a report.
    assert attacks.download(10_000).complete
    assert "status report" not in attacks.honest_log()


def test_a_lifetime_of_a_year_is_cut_to_what_is_configured(attacks: Attacks) -> None:
    (report,) = attacks.run("year")
    assert report["as_expected"], report

    def kept() -> bool:
        rows = attacks.pair.hub.api.get("/v1/custody?limit=100")["held"]
        return any(row["source"] == f"ipn:{terminal_node(_HOSTILE)}.99" for row in rows)

    assert kept()
    attacks.pair.hub.process.wait_until(lambda: not kept(), timeout_s=_FOREIGN_LIFETIME_S * 4)


def test_custody_of_a_blocked_terminal_survives_forged_signals(attacks: Attacks) -> None:
    satlink = attacks.pair.testbed.satlink
    name = attacks.pair.testbed.terminals[_HONEST].name
    done = list[Transfer]()
    client = threading.Thread(target=lambda: done.append(attacks.download(20_000_000)))
    client.start()
    time.sleep(0.8)
    satlink.block(name)
    try:
        # Bundles on their way to the blocked terminal are only in the hub's custody. The hub has to
        # have sent the hostile one something, so that that one knows how its sequences are named.
        attacks.run("opens", "signal-for-others", "signal-of-another", "custodian")
    finally:
        satlink.unblock(name)
    client.join(90)
    assert done and done[0].complete, done


# All attacks take some minutes.
@pytest.mark.timeout(700)
def test_nobody_notices_whatever_one_terminal_does(attacks: Attacks) -> None:
    with attacks.peak_memory() as peak, attacks.honest_downloads() as done:
        reports = attacks.run()
    assert len(reports) >= 30
    assert attacks.pair.hub.process.running()
    failed = [transfer for transfer in done if not transfer.complete]
    assert not failed, failed[:3]
    assert len(done) > len(reports)
    assert peak() < _MEMORY_BYTES
    assert attacks.download(3_000_000).complete


def test_every_attack_is_documented() -> None:
    text = (Path(__file__).parents[1] / "swarm" / "README.md").read_text()
    names = [name for kind in ("forged", "harmless", "refused", "endured") for name in _names(kind)]
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []
