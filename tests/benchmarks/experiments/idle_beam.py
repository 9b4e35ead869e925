"""Two hundred idle terminals and one that uploads share one return link: who gets the beam?

Three terminals are real nodes: the one that uploads, and two idle ones. The other 198 idle
terminals are registered with the control service and the beam, but emulated:

- Whenever the first idle node (the meter) reports, the service gets the same report for each of
  them, with its own node number: at news, such as a new plan, and each 10 s.
- The beam carries for each of them as many bytes as the meter's link: all its IP bytes (reports,
  keepalives, beacons, acknowledgements), as UDP from the second idle node's side of the hop.
"""

from __future__ import annotations

import copy
import http.client
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.bench import HEADERS_LEAVE, Settings, say
from tests.benchmarks.experiments.flows import run_uploads
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed import addresses, ports
from tests.testbed.control import BEAM, PORT, REPORTS, Control
from tests.testbed.node import HUB_NODE, Options, Pair, terminal_node
from tests.testbed.profile import Link, symmetric
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_BEAM_BPS = 10_000_000
_PROFILE = symmetric("idle beam", Link(rate_bps=_BEAM_BPS, delay_ms=280.0, queue_ms=1000.0))
_IDLE = 200
_UPLOADS, _METER, _CARRIER = range(3)
_REAL = 3
_EMULATED = _IDLE - (_REAL - 1)
# The time until plans follow the demand, and the time measured after that.
_SETTLED_AFTER_S, _MEASURED_S = 25.0, 40.0
_EACH_S = 0.25
# The bytes of the meter's link are sent for the others evenly over the 10 s between reports: so
# many terminals would not all send at the same moment.
_SPREAD_S = 10.0
_SENT_EACH_S = 0.01
_SINK_PORT = 9
# A packet of a report's size, and its IPv4 and UDP headers.
_PACKET_BYTES, _HEADER_BYTES = 400, 28


@dataclass(frozen=True)
class _Share:
    """The results of one run, in percent of the beam; and the reports that the service accepted."""

    upload: float
    plan: float
    idle: float
    reports: int


def run(settings: Settings) -> Result:
    """Upload beside the idle terminals, under the plans of a live control service."""
    result = Result("idle-beam")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    shares = [_one(settings.seed + number) for number in range(settings.runs or 5)]
    for part in ("upload", "plan", "idle"):
        values = [getattr(share, part) for share in shares]
        made = record(f"idle-beam.{part}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.1f} %")
    result.notes["reports taken, each run"] = [share.reports for share in shares]
    result.notes["measured"] = (
        f"{_MEASURED_S:.0f} s from {_SETTLED_AFTER_S:.0f} s behind the upload's beginning, at the "
        f"origin. {_REAL - 1} of the idle ones are real nodes; of the other {_EMULATED} the "
        "service gets a real one's status and the beam a real one's bytes, spread over 10 s. Not "
        "measured: what so many terminals cost the hub, and their acknowledgements of plans"
    )
    return result


def _one(seed: int) -> _Share:
    with Testbed(_PROFILE, terminals=_REAL, shared=True, seed=seed) as testbed:
        control = Control(testbed)
        control.register()
        for node in _emulated():
            control.call("PUT", f"/v1/terminals/{node}", {"beam": BEAM, "name": f"idle {node}"})
        options = Options(
            return_rate_bps=_BEAM_BPS // (_IDLE + 1), terminal=REPORTS, hub=control.hub_config
        )
        pair = Pair(testbed, options)
        access = Access(testbed.terminal.client, pair.http_forward(), addresses.ORIGIN, ports.HTTP)
        with ExitStack() as stack:
            heard = stack.enter_context(_heard(pair, control))
            stack.enter_context(_carried(testbed))
            watched = stack.enter_context(_watched(pair))
            seconds = _SETTLED_AFTER_S + _MEASURED_S
            [flow] = run_uploads([access], testbed.origin, seconds, seed)
        payload = flow.bytes_at(seconds) - flow.bytes_at(_SETTLED_AFTER_S)
        return _Share(
            upload=100 * payload * 8 / (_MEASURED_S * _BEAM_BPS * HEADERS_LEAVE),
            plan=watched.plan_percent,
            idle=watched.idle_percent,
            reports=heard.accepted,
        )


def _emulated() -> range:
    return range(terminal_node(_REAL), terminal_node(_REAL) + _EMULATED)


@contextmanager
def _beside(work: Callable[[], None], name: str, each_s: float = _EACH_S) -> Iterator[None]:
    """Call `work()` each `each_s` in a thread; its exceptions are raised at the context's end."""
    over = threading.Event()
    errors: list[BaseException] = []

    def go_on() -> None:
        try:
            while not over.wait(each_s):
                work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=go_on, name=name)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


@dataclass
class _Heard:
    """How many reports of emulated terminals the service accepted."""

    accepted: int = 0
    # The order of the meter's reports: incarnation and uptime.
    last: tuple[int, int] = (0, 0)


@contextmanager
def _heard(pair: Pair[Testbed], control: Control) -> Iterator[_Heard]:
    """Repeat the meter's reports for each emulated terminal, through the same gateway."""
    heard = _Heard()

    def post() -> None:
        status, age_s = _status_of(pair, terminal_node(_METER))
        if status is None or (at := (status["incarnation"], status["uptime_ms"])) == heard.last:
            return
        heard.last = at
        answer = _post(control, [_entry(node, status, age_s) for node in _emulated()])
        if answer["refused"]:
            raise RuntimeError(f"the service refuses reports: {answer['refused'][0]}")
        heard.accepted += answer["accepted"]

    with _beside(post, "reports"):
        yield heard
    # At least one per `_SPREAD_S` from each terminal, or the service heard too little.
    if heard.accepted < _EMULATED * int(_MEASURED_S / _SPREAD_S):
        raise RuntimeError(f"the service took only {heard.accepted} reports")


def _status_of(pair: Pair[Testbed], node: int) -> tuple[dict[str, Any] | None, float]:
    """Return a terminal's latest status at the hub, and its age, s."""
    for one in pair.hub.api.get("/v1/reports")["terminals"]:
        if one["node"] == node:
            return {"kind": "status", **one["status"]}, float(one["age_s"])
    return None, 0.0


def _entry(node: int, status: dict[str, Any], age_s: float) -> dict[str, Any]:
    report = copy.deepcopy(status)
    for link in report["links"]:
        link["terminal"] = node
    return {"node": node, "age_ms": round(1000 * age_s), "report": report}


def _post(control: Control, entries: list[dict[str, Any]]) -> Any:
    """Post reports as the hub does, with its token."""
    token = control.gateway_token_file.read_text().strip()
    post = {
        "version": 1,
        "node": HUB_NODE,
        "sent_ms": time.time_ns() // 1_000_000,
        "reports": entries,
    }
    connection = http.client.HTTPConnection(addresses.CONTROL, PORT, timeout=10)
    connection.sock = control.namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.sock.settimeout(10)
    try:
        connection.sock.connect((addresses.CONTROL, PORT))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/reports", json.dumps(post), headers)
        answer = connection.getresponse()
        content = answer.read().decode()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise RuntimeError(f"POST /v1/reports: {answer.status} {content}")
    return json.loads(content)


@contextmanager
def _carried(testbed: Testbed) -> Iterator[None]:
    """Have the return link carry as many bytes for each emulated terminal as for the meter."""
    carrier = testbed.terminals[_CARRIER].node
    with (
        testbed.hub.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        carrier.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        # Nobody reads from it: the kernel silently drops what does not fit.
        sink.bind((addresses.HUB_SAT, _SINK_PORT))
        sock.connect((addresses.HUB_SAT, _SINK_PORT))
        meter = testbed.terminals[_METER].name
        packet = bytes(_PACKET_BYTES - _HEADER_BYTES)
        lately = deque([_sent(testbed)[meter]], maxlen=round(_SPREAD_S / _EACH_S) + 1)
        owed, last = 0.0, time.monotonic()

        def look() -> None:
            lately.append(_sent(testbed)[meter])

        def send() -> None:
            nonlocal owed, last
            before, last = last, time.monotonic()
            owed += (lately[-1] - lately[0]) * _EMULATED * (last - before) / _SPREAD_S
            for _ in range(int(owed // _PACKET_BYTES)):
                sock.send(packet)
                owed -= _PACKET_BYTES

        with _beside(look, "meter"), _beside(send, "idle terminals", _SENT_EACH_S):
            yield


@dataclass
class _Watched:
    """Observations of the plans and the beam during the measured upload."""

    parts: list[float] = field(default_factory=list)
    began: dict[str, int] | None = None
    ended: dict[str, int] = field(default_factory=dict)
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def plan_percent(self) -> float:
        """Return the uploading terminal's average rate by the plans, in % of the beam."""
        return 100 * sum(self.parts) / len(self.parts) / _BEAM_BPS

    @property
    def idle_percent(self) -> float:
        """Return the idle terminals' bytes in % of the beam; two links carry them all."""
        assert self.began
        names = [f"t{_METER}", f"t{_CARRIER}"]
        sent = sum(self.ended[name] - self.began[name] for name in names)
        return 100 * sent * 8 / (self.ended_s - self.began_s) / _BEAM_BPS


@contextmanager
def _watched(pair: Pair[Testbed]) -> Iterator[_Watched]:
    """Note the uploading node's rate by its plan, and the bytes on the others' links."""
    watched, testbed = _Watched(), pair.testbed
    settled = time.monotonic() + _SETTLED_AFTER_S
    end = settled + _MEASURED_S

    def look() -> None:
        now = time.monotonic()
        if not settled <= now < end:
            return
        if watched.began is None:
            watched.began, watched.began_s = _sent(testbed), now
        watched.ended, watched.ended_s = _sent(testbed), now
        [link] = pair.terminals[_UPLOADS].api.get("/v1/reports")["own"]["links"]
        # Without a plan there is no `rate_bps`; the upload then has the guaranteed rate.
        watched.parts.append(float(link.get("rate_bps", 0)) if link.get("plan_version") else 0.0)

    with _beside(look, "plans"):
        yield watched


def _sent(testbed: Testbed) -> dict[str, int]:
    links = testbed.satlink.statistics()["terminals"]
    return {name: link["return"]["bytes_sent"] for name, link in links.items()}
