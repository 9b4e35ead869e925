"""New exchanges after a blockage, while the backlog that it caused is sent, and beside bulk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Record, Result, quantile, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import Options, Pair
from tests.testbed.profile import PROFILE_V
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_DISK = {"custody": {"durability": "disk"}}
_LEAD_S = 5.0
_EXCHANGE_BYTES = 10_000
_EACH_S, _EXCHANGES = 0.5, 120
# At least the time that the backlog takes: an exchange that waits for all of it is timed, too.
_DEADLINE_S = 150.0
_BACKLOG_DEADLINE_S = 400.0
_KINDS: dict[str, Callable[..., Transfer]] = {"download": download, "upload": upload}


@dataclass(frozen=True)
class _Backlog:
    """The transfers that share the link with the exchanges, and the blockage before those."""

    transfer: Callable[..., Transfer]
    size: int
    streams: int
    blocked_s: float


# Large enough that all transfers still run when the last exchange begins.
_BEHIND = {
    "up": _Backlog(upload, 2_000_000, 12, 30.0),
    "down": _Backlog(download, 32_000_000, 12, 30.0),
}
_BESIDE = _Backlog(upload, 500_000, 50, 0.0)


@dataclass(frozen=True)
class _Behind:
    """By kind of exchange: the times beyond the round trip, ms; and what went wrong."""

    beyond_ms: dict[str, list[float]]
    broken: list[str]
    drained_s: float


def run(settings: Settings) -> Result:
    """Block twelve uploads, then twelve downloads; time new exchanges once the link is back."""
    result = Result("after-blockage")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    for way, backlog in _BEHIND.items():
        runs = _runs(settings, backlog, f"after a blockage, {way}")
        for kind in _KINDS:
            result.samples[f"{way}, {kind}"] = [one.beyond_ms[kind] for one in runs]
            result.records.append(_p95(f"after-blockage.{way}.{kind}", runs, kind))
            result.curves.setdefault("ms beyond the RTT over s", {})[f"{kind}, backlog {way}"] = [
                (2 * _EACH_S * place, took) for place, took in enumerate(runs[0].beyond_ms[kind])
            ]
        broken = [float(len(one.broken)) for one in runs]
        result.records.append(record(f"after-blockage.{way}.broken", "underpass", broken))
        result.notes[f"{way}, each run"] = [_told(one) for one in runs]
    return result


def run_beside_bulk(settings: Settings) -> Result:
    """Time new exchanges beside fifty uploads of their own class."""
    result = Result("beside-bulk")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    runs = _runs(settings, _BESIDE, "beside bulk")
    for kind in _KINDS:
        result.samples[kind] = [one.beyond_ms[kind] for one in runs]
        result.records.append(_p95(f"beside-bulk.{kind}", runs, kind))
    result.notes["each run"] = [_told(one) for one in runs]
    return result


def _runs(settings: Settings, backlog: _Backlog, what: str) -> list[_Behind]:
    runs: list[_Behind] = []
    with Testbed(PROFILE_V, seed=settings.seed) as testbed:
        pair = Pair(testbed, Options(terminal=_DISK, hub=_DISK))
        for number in range(settings.runs or 5):
            testbed.satlink.seed(settings.seed + number)
            runs.append(_one(pair, backlog, settings.seed + number))
            say(f"{what}: {_told(runs[-1])}")
    return runs


def _p95(figure: str, runs: list[_Behind], kind: str) -> Record:
    return record(figure, "underpass", [quantile(one.beyond_ms[kind], 0.95) for one in runs])


def _one(pair: Pair[Testbed], backlog: _Backlog, seed: int) -> _Behind:
    route, name = pair.socks5(), pair.testbed.terminal.name

    def held(place: int) -> Transfer:
        return backlog.transfer(
            pair.client,
            addresses.ORIGIN,
            backlog.size,
            route=route,
            seed=(seed + place) % 16,
            deadline_s=_BACKLOG_DEADLINE_S,
            reset=True,
        )

    def exchange(kind: str) -> Transfer:
        return _KINDS[kind](
            pair.client,
            addresses.ORIGIN,
            _EXCHANGE_BYTES,
            route=route,
            deadline_s=_DEADLINE_S,
            reset=True,
        )

    with ThreadPoolExecutor(backlog.streams + _EXCHANGES) as pool:
        held_back = [pool.submit(held, place) for place in range(backlog.streams)]
        time.sleep(_LEAD_S)
        if backlog.blocked_s > 0:
            pair.testbed.satlink.block(name, for_s=backlog.blocked_s)
        back = time.monotonic() + backlog.blocked_s
        begun: list[tuple[str, Future[Transfer]]] = []
        for number in range(_EXCHANGES):
            at = back + PROFILE_V.rtt_s + number * _EACH_S
            time.sleep(max(0.0, at - time.monotonic()))
            kind = list(_KINDS)[number % len(_KINDS)]
            begun.append((kind, pool.submit(exchange, kind)))
        done = [(kind, one.result()) for kind, one in begun]
        others = [one.result() for one in held_back]
    beyond: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for kind, one in done:
        took_s = _DEADLINE_S if one.last_byte_s is None else one.last_byte_s
        beyond[kind].append(1000 * (took_s - PROFILE_V.rtt_s))
    broken = [f"{kind}: {one.error}" for kind, one in done if one.error]
    broken += [f"held back: {one.error}" for one in others if one.error]
    drained_s = max(one.last_byte_s or _BACKLOG_DEADLINE_S for one in others)
    return _Behind(beyond, broken, drained_s - _LEAD_S - backlog.blocked_s)


def _told(one: _Behind) -> str:
    p95 = ", ".join(
        f"{kind}s median {quantile(took, 0.5):.0f} ms, p95 {quantile(took, 0.95):.0f} ms, "
        f"most {max(took):.0f} ms"
        for kind, took in one.beyond_ms.items()
    )
    broken = dict(Counter(one.broken)) or "nothing broken"
    return f"{p95} beyond the RTT; drained {one.drained_s:.0f} s behind the return; {broken}"
