"""Which peers are accepted, the effects of a crash and a revocation, and configuration errors."""

from __future__ import annotations

import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from underpass_control.toml_text import toml_text

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.namespace import command
from tests.testbed.node import HUB_NODE, Node, terminal_node
from tests.testbed.programs import built

pytestmark = pytest.mark.node


def test_a_node_of_a_foreign_authority_is_refused_and_the_others_do_not_notice(
    start_pair: StartPair,
) -> None:
    pair = start_pair(terminals=2)
    testbed = pair.testbed
    intruder, honest = pair.terminals[0], pair.terminals[1]
    intruder.process.kill()
    pair.hub.process.wait_until(lambda: not pair.hub.carries(2))
    foreign, number = testbed.dir / "foreign", str(terminal_node(0))
    command([built("underpass"), "pki", "init", "--dir", str(foreign)])
    command([built("underpass"), "pki", "issue", "--dir", str(foreign), "--node", number])
    # The intruder itself trusts the hub, so that it is the hub that must refuse.
    shutil.copy(testbed.dir / "pki" / "ca.crt", foreign / "nodes" / number / "ca.crt")
    shutil.copy(
        testbed.dir / "pki" / "nodes" / number / "ca.crl", foreign / "nodes" / number / "ca.crl"
    )
    text = intruder.config_path.read_text()
    intruder.config_path.write_text(text.replace(str(testbed.dir / "pki"), str(foreign)))
    intruder.start()
    pair.hub.process.wait_until(
        lambda: "invalid peer certificate" in pair.hub.process.log_path.read_text()
    )
    done = download(testbed.terminals[1].client, addresses.ORIGIN, 2_000_000, route=pair.socks5(1))
    assert done.error is None
    assert intruder.process.running()
    assert not intruder.carries(1)
    assert honest.carries(1)


def test_a_revoked_node_loses_its_live_sessions(start_pair: StartPair) -> None:
    pair = start_pair(terminals=2)
    pki = pair.testbed.dir / "pki"
    revoked = str(terminal_node(0))
    command([built("underpass"), "pki", "revoke", "--dir", str(pki), "--node", revoked])
    folder = pki / "nodes" / str(HUB_NODE)
    shutil.copy(pki / "ca.crl", folder / "ca.crl.new")
    (folder / "ca.crl.new").rename(folder / "ca.crl")
    pair.hub.process.wait_until(lambda: not pair.hub.carries(2), timeout_s=20)
    assert pair.hub.carries(1)
    other = pair.testbed.terminals[1].client
    assert download(other, addresses.ORIGIN, 100_000, route=pair.socks5(1)).complete
    assert not pair.hub.carries(2)


@pytest.mark.parametrize("restarted", ["hub", "terminal"])
def test_a_node_that_crashes_resets_its_streams_and_serves_new_ones_when_it_is_back(
    start_pair: StartPair, restarted: str
) -> None:
    pair = start_pair()
    node: Node = getattr(pair, restarted)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, 100_000_000, route=pair.socks5()
        )
        time.sleep(0.8)
        node.process.kill()
        node.start()
        broken = running.result(40)
    assert not broken.complete
    assert broken.error is not None
    if restarted == "hub":
        # The kernel closes the sockets of a killed terminal in its own way.
        assert "ConnectionResetError" in broken.error
    assert 0 < broken.bytes < broken.size
    pair.wait_until_ready()
    assert download(pair.client, addresses.ORIGIN, 500_000, route=pair.socks5()).complete


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("nmber", {"node": {"nmber": 1, "role": "hub"}}),
        ("number", {"node": {"number": 0, "role": "hub"}, "tls": {"plain": True}}),
        ("role", {"node": {"number": 1, "role": "pilot"}, "tls": {"plain": True}}),
        (
            "rtt_ms",
            {
                "node": {"number": 10, "role": "terminal"},
                "tls": {"plain": True},
                "path": [
                    {"name": "p", "neighbour": 1, "remote": "192.0.2.1:4556", "rtt_ms": 99_999_999}
                ],
            },
        ),
        (
            "pki_dir",
            {
                "node": {"number": 1, "role": "hub"},
                "listener": [{"name": "none", "listen": "127.0.0.1:1"}],
                "terminal": [{"node": 10}],
            },
        ),
    ],
)
def test_a_wrong_configuration_ends_the_start_and_names_the_key(
    tmp_path: Path, key: str, config: dict[str, object]
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(toml_text(config))
    for verb in ("run", "check-config"):
        done = subprocess.run(
            [built("underpass"), verb, "--config", str(path)],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        assert done.returncode == 1
        assert key in done.stderr + done.stdout
