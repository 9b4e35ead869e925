"""`make demo`: the whole system on an emulated satellite hop, to use from this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

from tests.testbed import addresses, namespace
from tests.testbed.namespace import CommandError, Namespace, command
from tests.testbed.node import HTTP_PORT, HUB_NODE, SOCKS_PORT, Options, Pair
from tests.testbed.process import ProcessError
from tests.testbed.profile import PROFILE_V
from tests.testbed.programs import built, missing
from tests.testbed.topology import Testbed


def main() -> int:
    """Run until Ctrl-C or SIGTERM; leave nothing behind."""
    reason = namespace.unprivileged_reason() or missing("satlink", "underpass")
    if reason:
        _say(f"the demo cannot run: {reason}")
        return 1
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    swept = namespace.sweep()
    if swept:
        _say(f"removed what an earlier run left: {' '.join(swept)}")
    _say("starting terminal, satellite hop, hub, origin (about 5 s)")
    try:
        with Testbed(PROFILE_V) as testbed, _host_access(testbed.terminal.node) as (host, proxy):
            pair = Pair(testbed, _options(host, proxy))
            _say(_instructions(testbed, pair, proxy))
            _wait(ended, testbed, pair)
            _say("\nending")
    except (CommandError, ProcessError) as error:
        _say("\n".join([str(error), *getattr(error, "__notes__", [])]))
        return 1
    _say("ended; no namespace, rule, process or interface is left")
    return 0


def _wait(ended: threading.Event, testbed: Testbed, pair: Pair[Testbed]) -> None:
    """Wait for the signal; start a node that was killed again, as a supervisor would."""
    while not ended.wait(0.5):
        satlink = testbed.satlink.process
        if not satlink.running():
            raise ProcessError(f"{satlink.name} has ended by itself:\n{satlink.log_tail()}")
        for node in (pair.hub, pair.terminal):
            if node.process.running():
                continue
            if not node.process.killed():
                raise ProcessError(f"{node.name} has ended by itself:\n{node.process.log_tail()}")
            _say(f"{node.name} was killed; starting it again")
            node.start()


@contextlib.contextmanager
def _host_access(terminal: Namespace) -> Iterator[tuple[str, str]]:
    """Join this machine to the terminal as one more client; yield its and the proxy's address."""
    third = _free_network()
    host, proxy = f"10.199.{third}.1", f"10.199.{third}.2"
    interface = f"up{os.getpid():x}"
    command(
        ["ip", "link", "add", interface, "type", "veth", "peer", "host", "netns", terminal.name]
    )
    try:
        command(["ip", "address", "add", f"{host}/24", "dev", interface])
        command(["ip", "link", "set", interface, "up"])
        terminal.ip("address", "add", f"{proxy}/24", "dev", "host")
        terminal.ip("link", "set", "host", "up")
        yield host, proxy
    finally:
        command(["ip", "link", "delete", interface])


def _free_network() -> int:
    """Return the third byte of a network 10.199.x.0/24 that this machine does not use."""
    used = command(["ip", "-4", "route", "show", "table", "all"])
    return next(third for third in range(256) if f"10.199.{third}." not in used)


def _options(host: str, proxy: str) -> Options:
    lan = addresses.terminal_lan(0)
    listeners = [
        {"name": f"{name}-{place}", "protocol": protocol, "address": f"{address}:{port}"}
        for name, protocol, port in (
            ("socks", "socks5", SOCKS_PORT),
            ("http", "http", HTTP_PORT),
        )
        for place, address in (("vehicle", lan), ("host", proxy))
    ]
    networks = [addresses.CLIENT_NETWORKS, addresses.CLIENT_NETWORKS6, f"{host}/32"]
    custody = {"custody": {"durability": "disk"}}
    edge = {"client_networks": networks, "listener": listeners}
    return Options(
        terminal={"edge": edge, "reports": {"to": HUB_NODE}, **custody},
        hub=custody,
    )


def _instructions(testbed: Testbed, pair: Pair[Testbed], proxy: str) -> str:
    origin, terminal = addresses.ORIGIN, testbed.terminal
    satlink = f"{built('satlink')} ctl --socket {testbed.satlink.socket_path}"
    underpass = built("underpass")
    return f"""
A vehicle's terminal and a hub, 560 ms apart, 40 Mbit/s down and 2 up; the origin is {origin}.
There is no Internet behind the hub: the origin serves /bytes/N of any N, and answers /request.

  HTTP proxy    {proxy}:{HTTP_PORT}     (CONNECT and http://)
  SOCKS5 proxy  {proxy}:{SOCKS_PORT}

Try, in another terminal of this machine:
  curl -x http://{proxy}:{HTTP_PORT} http://{origin}/
  curl --socks5-hostname {proxy}:{SOCKS_PORT} http://{origin}/request
  curl -x http://{proxy}:{HTTP_PORT} -o /dev/null http://{origin}/bytes/100000000
The same without Underpass, plain TCP over the same hop:
  sudo ip netns exec {terminal.client.name} curl -o /dev/null http://{origin}/bytes/8000000

Into a road tunnel: block the line of sight for 20 s while the large download runs, and see it
hold and resume; or block until told otherwise:
  sudo {satlink} block {terminal.name} --for 20
  sudo {satlink} block {terminal.name}
  sudo {satlink} unblock {terminal.name}

The nodes find out by themselves, by beacons. A request for later is kept through all of it, and
through the end of either node; the answer names where its response will be:
  curl -x http://{proxy}:{HTTP_PORT} -i -H 'Prefer: respond-async' http://{origin}/bytes/1000000

Kill a node and see it go on with what it had in custody; it is started again at once:
  sudo pkill -9 -f {pair.hub.config_path}
  sudo pkill -9 -f {pair.terminal.config_path}

What the nodes say of themselves, and what the hub knows of the terminal's link:
  sudo {underpass} status --socket {pair.terminal.api.path}
  sudo {underpass} status --socket {pair.hub.api.path}
  sudo curl --unix-socket {pair.hub.api.path} http://node/v1/reports
  sudo {satlink} stats
Logs and configurations: {testbed.dir}

Ctrl-C ends it all."""


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
