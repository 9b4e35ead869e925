"""`make demo`: the whole system on an emulated satellite hop, usable from this machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

from tests.drives.island import ISLAND_OSM
from tests.drives.synthetic import passage_of
from tests.testbed import addresses, namespace, vehicle
from tests.testbed import collector as collectors
from tests.testbed.client.transfer import download
from tests.testbed.control import BEAM, PORT, REPORTS, Control, ControlError
from tests.testbed.following import Event, Follower
from tests.testbed.namespace import CommandError, Namespace, command
from tests.testbed.narration import SYMBOLS, Narrator
from tests.testbed.node import HTTP_PORT, HUB_NODE, SOCKS_PORT, Node, Options, Pair, terminal_node
from tests.testbed.process import ProcessError
from tests.testbed.profile import Link, Profile
from tests.testbed.programs import built, missing
from tests.testbed.topology import Testbed
from tests.testbed.vehicle import Vehicle

_TERMINALS = 4
_BEAM = Profile(
    "the demo's beam",
    Link(rate_bps=20_000_000, delay_ms=280.0, queue_ms=1000.0),
    Link(rate_bps=4_000_000, delay_ms=280.0, queue_ms=1000.0),
)
# A motorway with a road tunnel of 1.6 km: a drive of some two and a half minutes.
_ROAD, _LEAD_M, _TAIL_M = "A1 east", 1500.0, 150.0
_KINDS = ("positions", "blockages", "plans", "acknowledgements", "links", "ledger")
# A download without an end.
_ENDLESS_BYTES, _ENDLESS_S = 1_000_000_000_000, 30 * 86_400.0


def main() -> int:
    """Run until Ctrl-C or SIGTERM; leave nothing behind."""
    argparse.ArgumentParser(prog="demo", description=__doc__).parse_args()
    reason = namespace.unprivileged_reason() or missing("satlink", "underpass") or vehicle.missing()
    if reason:
        _say(f"the demo cannot run: {reason}")
        return 1
    ended = _end_on_signals()
    swept = namespace.sweep()
    if swept:
        _say(f"removed what an earlier run left: {' '.join(swept)}")
    _say("starting terminals, satellite hop, hub, origin, control service (about 15 s)")
    try:
        with Testbed(_BEAM, terminals=_TERMINALS, shared=True) as testbed:
            _run(ended, testbed)
            _say("\nending")
    except (CommandError, ProcessError) as error:
        if ended.is_set():
            # A signal to the whole process group also ends programs that were just starting.
            _say("ended while starting; nothing is left")
            return 0
        _say("\n".join([str(error), *getattr(error, "__notes__", [])]))
        return 1
    _say("ended; no namespace, rule, process or interface is left")
    return 0


def _end_on_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set, in any number and mix.

    A signal handler interrupts the main thread, which may hold the event's lock. So a thread sets
    the event, woken by the interpreter's wake-up descriptor.
    """
    ended = threading.Event()
    told, tells = socket.socketpair()
    tells.setblocking(False)
    signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    def watch() -> None:
        # Both ends stay open: later signals are written, too, and ignored.
        while told.recv(1) and tells:
            ended.set()

    threading.Thread(target=watch, daemon=True).start()
    return ended


def _run(ended: threading.Event, testbed: Testbed) -> None:
    collector = os.environ.get("TRACES")
    traced = {"UNDERPASS_TRACES": collectors.URL} if collector else {}
    control = Control(testbed, maps=[ISLAND_OSM], environment=traced)
    control.register()
    with (
        _collector(testbed, control, collector),
        _host_access(testbed.terminal.node, "t") as (host, proxy),
        _host_access(control.namespace, "s") as (_, api),
        Follower(control, _KINDS) as follower,
    ):
        pair = Pair(testbed, _options(control, host, proxy, traced=collector is not None))
        _say(_instructions(testbed, pair, control, proxy, api))
        for index in range(_TERMINALS):
            threading.Thread(target=_download, args=(pair, index, ended), daemon=True).start()
        _wait(ended, testbed, pair, control, follower)


def _wait(
    ended: threading.Event,
    testbed: Testbed,
    pair: Pair[Testbed],
    control: Control,
    follower: Follower,
) -> None:
    """Narrate events until the signal; repeat the drive, and restart killed programs."""
    names = {terminal_node(one.index): one.name for one in testbed.terminals} | {HUB_NODE: "hub"}
    narrator = Narrator(names)
    drive = passage_of(_ROAD, lead_m=_LEAD_M, tail_m=_TAIL_M)
    driver = Vehicle(testbed, testbed.terminal, drive)
    while not ended.is_set():
        event = follower.next(0.5)
        if event:
            for line in _told(narrator, control, event):
                _say(line)
        _keep_running(testbed, pair, control)
        if time.time() > driver.end_ms / 1000:
            driver.process.stop()
            _say(f"the vehicle drives the same way again, from {_LEAD_M:.0f} m before the portal")
            driver = Vehicle(testbed, testbed.terminal, drive)


def _keep_running(testbed: Testbed, pair: Pair[Testbed], control: Control) -> None:
    """Restart a node or the service after a kill, as a supervisor would."""
    satlink = testbed.satlink.process
    if not satlink.running():
        raise ProcessError(f"{satlink.name} has ended by itself:\n{satlink.log_tail()}")
    watched: list[Node | Control] = [pair.hub, *pair.terminals, control]
    for one in watched:
        if one.process.running():
            continue
        name = one.process.name
        if one.process.follow():
            _say(f"{name} is upgraded: process {one.process.pid} goes on")
            continue
        if not one.process.killed():
            raise ProcessError(f"{name} has ended by itself:\n{one.process.log_tail()}")
        _say(f"{name} was killed; starting it again")
        one.start()


def _told(narrator: Narrator, control: Control, event: Event) -> list[str]:
    data, now_s = event.data, event.came_s
    try:
        if event.kind == "plans":
            lines = control.plan_lines(data["link"], data["plan"])
            return list(narrator.plan(data["link"], data["plan"], lines, now_s))
        if event.kind == "ledger":
            return [narrator.ledger(data, control.balances(data["link"]), now_s)]
    except (OSError, ControlError):
        # The service was killed, or has a newer plan already: wait for its next event.
        return []
    tell = {
        "positions": narrator.positions,
        "blockages": narrator.blockages,
        "links": narrator.links,
        "acknowledgements": narrator.acknowledgements,
    }.get(event.kind)
    return list(tell(data, now_s)) if tell else []


def _download(pair: Pair[Testbed], index: int, ended: threading.Event) -> None:
    """Keep a terminal's client busy; begin again if a killed node has ended the download."""
    client = pair.testbed.terminals[index].client
    while not ended.wait(1.0):
        download(
            client,
            addresses.ORIGIN,
            _ENDLESS_BYTES,
            route=pair.http_forward(index),
            seed=index,
            deadline_s=_ENDLESS_S,
            stop=ended,
        )


@contextlib.contextmanager
def _collector(testbed: Testbed, control: Control, url: str | None) -> Iterator[None]:
    """Forward the nodes' and the service's traces to this machine's collector, if one is set."""
    if url is None:
        yield
        return
    nodes = [terminal.node for terminal in testbed.terminals]
    with collectors.Collector(*nodes, testbed.hub, control.namespace, forward=url):
        yield


@contextlib.contextmanager
def _host_access(to: Namespace, suffix: str) -> Iterator[tuple[str, str]]:
    """Connect this machine to a namespace; yield this machine's address and the namespace's."""
    third = _free_network()
    host, there = f"10.199.{third}.1", f"10.199.{third}.2"
    interface = namespace.host_interface(suffix)
    command(["ip", "link", "add", interface, "type", "veth", "peer", "host", "netns", to.name])
    try:
        command(["ip", "address", "add", f"{host}/24", "dev", interface])
        command(["ip", "link", "set", interface, "up"])
        to.ip("address", "add", f"{there}/24", "dev", "host")
        to.ip("link", "set", "host", "up")
        yield host, there
    finally:
        command(["ip", "link", "delete", interface])


def _free_network() -> int:
    """Return the third byte of a network 10.199.x.0/24 that this machine does not use."""
    used = command(["ip", "-4", "route", "show", "table", "all"])
    return next(third for third in range(256) if f"10.199.{third}." not in used)


def _options(control: Control, host: str, proxy: str, *, traced: bool) -> Options:
    """The first terminal is the vehicle's: this machine is its client, and its gpsd runs there."""
    assert _BEAM.return_.rate_bps is not None
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
    both: dict[str, object] = {"custody": {"durability": "disk"}}
    if traced:
        both["traces"] = {"url": collectors.URL, "ratio": 1.0}
    edge = {"client_networks": networks, "listener": listeners}
    # Switched off, a terminal dials itself, and by default it refuses the origin's network.
    dial = {"allow_networks": [addresses.WAN_NETWORK, addresses.WAN_NETWORK6]}
    return Options(
        return_rate_bps=_BEAM.return_.rate_bps // _TERMINALS,
        terminal={**REPORTS, **both, "provider": {"may_set": ["class"]}, "edge": {"dial": dial}},
        only={0: {"edge": edge, "positions": vehicle.POSITIONS}},
        hub={**control.hub_config, **both},
    )


def _instructions(
    testbed: Testbed, pair: Pair[Testbed], control: Control, proxy: str, api: str
) -> str:
    origin, terminal = addresses.ORIGIN, testbed.terminal
    satlink = f"{built('satlink')} ctl --socket {testbed.satlink.socket_path}"
    underpass = built("underpass")
    service, ask = f"http://{api}:{PORT}", f"curl -H 'Authorization: Bearer {control.operator}'"
    settings = {"classes": [{"name": "bulk", "policy": "migrate"}]}
    rollout = json.dumps({"name": "bulk", "beam": BEAM, "hold_s": 5, "settings": settings})
    return f"""
Four terminals and a hub, 560 ms apart, share a beam of 20 Mbit/s down and 4 up; each has a
download that never ends. {terminal.name} drives through a road tunnel, again and again: the control
service knows it beforehand from its positions and the map, lends it capacity from the others, and
gives that back to them while it is inside. See it on the map; this opens the console, signed in:

  {service}/#token={control.operator}

There is no Internet behind the hub: the origin is {origin}, serves
/bytes/N of any N, and answers /request.

  HTTP proxy    {proxy}:{HTTP_PORT}     (of {terminal.name}; CONNECT and http://)
  SOCKS5 proxy  {proxy}:{SOCKS_PORT}
  REST API      {service}/docs (token {control.operator})

Try, in another terminal of this machine:
  curl -x http://{proxy}:{HTTP_PORT} http://{origin}/
  curl --socks5-hostname {proxy}:{SOCKS_PORT} http://{origin}/request
  curl -x http://{proxy}:{HTTP_PORT} -o /dev/null http://{origin}/bytes/100000000
The same without Underpass, plain TCP over the same hop:
  sudo ip netns exec {terminal.client.name} curl -o /dev/null http://{origin}/bytes/8000000
Or have the proxies dial themselves, as plain IP, while open connections go on; and no longer:
  sudo {underpass} switch off --socket {pair.terminal.api.path}
  sudo {underpass} switch on --socket {pair.terminal.api.path}

Ask the control service for its terminals, what it expects, what it has planned, and who owes how
much (`bits` below 0) or is owed it (above 0):
  {ask} {service}/v1/terminals
  {ask} '{service}/v1/blockages?state=predicted'
  {ask} {service}/v1/beams/{BEAM}/plans/forward
  {ask} {service}/v1/beams/{BEAM}/balances

Into a road tunnel that is on no map: block the line of sight for 20 s, and see downloads hold and
resume; or block until told otherwise:
  sudo {satlink} block {terminal.name} --for 20
  sudo {satlink} block {terminal.name}
  sudo {satlink} unblock {terminal.name}

The nodes find out by themselves, by beacons. A request for later is kept through all of it, and
through the end of either node; the answer names where its response will be:
  curl -x http://{proxy}:{HTTP_PORT} -i -H 'Prefer: respond-async' http://{origin}/bytes/1000000

Kill a node or the control service, and see it go on with what it had; it is started again at once:
  sudo pkill -9 -f {pair.hub.config_path}
  sudo pkill -9 -f {pair.terminal.config_path}
  sudo pkill -9 -f {control.database}

Have another process of the same program go on for a node, as after an update of its package; the
downloads go on, too:
  sudo {underpass} upgrade --socket {pair.hub.api.path}

What the hop gives a client right now, round trips beside a download and an upload:
  sudo {underpass} speed-test --seconds 3 --socket {pair.terminals[1].api.path}

Change a class at all terminals in stages, at one first, at the others once it has held there; a
node that does not hear its hub any more takes it back. The console's settings show how far it is:
  {ask} -H 'Content-Type: application/json' \\
       -d '{rollout}' {service}/v1/rollouts

What the nodes say of themselves, and what the hub knows of the terminal's link:
  sudo {underpass} status --socket {pair.terminal.api.path}
  sudo {underpass} status --socket {pair.hub.api.path}
  sudo curl --unix-socket {pair.hub.api.path} http://node/v1/reports
  sudo {satlink} stats
Logs and configurations: {testbed.dir}

Lines on plans use the symbols of the paper (Oh, Kim and Kim) for the vehicle ahead of a tunnel:
{SYMBOLS}

Ctrl-C ends it all."""


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
