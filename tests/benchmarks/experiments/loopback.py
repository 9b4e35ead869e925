"""Two chained proxies on loopback: the cost of the programs, without a hop."""

from __future__ import annotations

import functools
import shutil
import statistics
from collections.abc import Callable

from tests.benchmarks import cost
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.subject import COLD
from tests.benchmarks.subjects.underpass import TOLD_NOTHING
from tests.testbed import addresses, ports
from tests.testbed.client.drain import drain_bps
from tests.testbed.client.route import DIRECT, Route
from tests.testbed.loopback import Loopback
from tests.testbed.node import Options, Pair
from tests.testbed.programs import missing
from tests.testbed.topology import listens

# Bytes of each run, all streams together.
_BYTES = 2_000_000_000
_DEADLINE_S = 300.0
_STREAMS = (1, 64)
_BASE = "haproxy"

Way = tuple[Route, str, int]


def run(settings: Settings) -> Result:
    """Measure the rate of 1 and of 64 streams, in turns, and ours against HAProxy's."""
    result = Result("loopback")
    with Loopback() as bed:
        ways = _start(bed, result)
        values: dict[tuple[str, int], list[float]] = {}
        for _ in range(settings.runs or 30):
            for subject, way in ways.items():
                for streams in _STREAMS:
                    try:
                        rate = _drained_bps(bed, way, streams)
                    except OSError as error:
                        say(f"loopback  {subject}, {streams} streams: {error}")
                        rate = 0.0
                    values.setdefault((subject, streams), []).append(rate / 1e6)
    for (subject, streams), rates in values.items():
        result.records.append(record(f"loopback-{streams}.rate", subject, rates))
        say(f"loopback  {subject}, {streams} streams: {statistics.median(rates):.0f} Mbit/s")
        if (_BASE, streams) in values:
            base = statistics.median(values[_BASE, streams])
            if base:
                ratios = [rate / base for rate in rates]
                result.records.append(record(f"loopback-{streams}.ratio", subject, ratios))
    return result


def run_cost(settings: Settings) -> Result:
    """What both nodes spend on each MB: instructions if the machine counts them, or else time."""
    result = Result("loopback-cost")
    if result.left_out(missing("underpass")):
        return result
    kind = cost.kind()
    values: dict[tuple[str, int], list[float]] = {}
    with Loopback() as bed:
        pairs = {
            "underpass": _pair(bed, "plain", 0, tls=False),
            "underpass-tls": _pair(bed, "tls", 1, tls=True),
        }
        result.told |= dict.fromkeys(pairs, TOLD_NOTHING)
        for _ in range(settings.runs or 10):
            for subject, pair in pairs.items():
                for streams in _STREAMS:
                    drained = functools.partial(_drained_bps, bed, _way(pair), streams)
                    spent = cost.spent(kind, (pair.hub.process, pair.terminal.process), drained)
                    values.setdefault((subject, streams), []).append(spent / (_BYTES / 1e6))
    for (subject, streams), of_subject in values.items():
        made = record(f"loopback-cost-{streams}.{kind}", subject, of_subject)
        say(f"loopback  {subject}, {streams} streams: {made.median:.4g} {made.unit}")
        result.records.append(made)
    return result


def _drained_bps(bed: Loopback, way: Way, streams: int) -> float:
    route, host, port = way
    return drain_bps(
        bed.hub,
        host,
        port,
        route=route,
        streams=streams,
        size=_BYTES // streams,
        deadline_s=_DEADLINE_S,
    )


def _start(bed: Loopback, result: Result) -> dict[str, Way]:
    ways: dict[str, Way] = {"no-proxy": (DIRECT, addresses.ORIGIN, ports.HTTP)}
    result.told["no-proxy"] = COLD
    starts: list[tuple[str, Callable[[], Way], str | None]] = [
        ("underpass", lambda: _way(_pair(bed, "plain", 0, tls=False)), missing("underpass")),
        ("underpass-tls", lambda: _way(_pair(bed, "tls", 1, tls=True)), missing("underpass")),
        (_BASE, lambda: _haproxy(bed, 5000, splice=False), _haproxy_missing()),
        ("haproxy-splice", lambda: _haproxy(bed, 5010, splice=True), _haproxy_missing()),
    ]
    for name, start, reason in starts:
        if reason:
            say(f"{name} is left out: {reason}")
            result.notes[f"{name} left out"] = reason
        else:
            ways[name] = start()
            result.told[name] = TOLD_NOTHING if name.startswith("underpass") else COLD
    return ways


def _pair(bed: Loopback, name: str, port_offset: int, *, tls: bool) -> Pair[Loopback]:
    return Pair(bed, Options(tls=tls), name=f"-{name}", port_offset=port_offset)


def _way(pair: Pair[Loopback]) -> Way:
    return pair.http_connect(), addresses.ORIGIN, ports.HTTP


def _haproxy_missing() -> str | None:
    return None if shutil.which("haproxy") else "haproxy is not installed (.ci/setup --bench)"


def _haproxy(bed: Loopback, port: int, *, splice: bool) -> Way:
    """Chain two HAProxy processes, TCP mode, with their defaults for threads and buffers."""
    option = "option splice-auto" if splice else "no option splice-auto"
    target = f"{addresses.ORIGIN}:{ports.HTTP}"
    for place in (port + 1, port):
        path = bed.dir / f"haproxy-{place}.cfg"
        path.write_text(
            "global\n    maxconn 2000\n"
            f"defaults\n    mode tcp\n    {option}\n"
            "    timeout connect 5s\n    timeout client 600s\n    timeout server 600s\n"
            f"listen relay\n    bind {addresses.HUB_SAT}:{place}\n    server next {target}\n"
        )
        process = bed.start(f"haproxy-{place}", ["haproxy", "-db", "-f", str(path)], bed.hub)
        process.wait_until(functools.partial(listens, bed.hub, place))
        target = f"{addresses.HUB_SAT}:{place}"
    return DIRECT, addresses.HUB_SAT, port
