"""A terminal with a terrestrial path and a satellite: bonded, and while one of the paths fails."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tests.benchmarks.bench import (
    HEADERS_LEAVE,
    OURS,
    WIDE_WINDOWS,
    Bench,
    Series,
    Settings,
    say,
)
from tests.benchmarks.experiments.downloads import seconds, transfer_record, typical_curve
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.split import SplitProxy, Way
from tests.benchmarks.subjects.underpass import Underpass, UnderpassOverMptcp
from tests.testbed.client.transfer import Transfer
from tests.testbed.node import PathName
from tests.testbed.profile import Link, Profile
from tests.testbed.satlink import Satlink
from tests.testbed.topology import Testbed

_MB = 1_000_000
# The hops of Bujari et al., A Virtual PEP for Web Optimization over a Satellite-Terrestrial
# Backhaul: a terrestrial buffer of 590 kB.
TERRESTRIAL = Profile(
    "terrestrial",
    Link(rate_bps=10_000_000, delay_ms=15.0, queue_ms=472.0),
    Link(rate_bps=1_000_000, delay_ms=15.0, queue_ms=472.0),
)
SATELLITE = Profile(
    "satellite",
    Link(rate_bps=40_000_000, delay_ms=265.0, queue_ms=1000.0),
    Link(rate_bps=2_000_000, delay_ms=265.0, queue_ms=1000.0),
)
_BOTH: Sequence[PathName] = ("satellite", "terrestrial")
_BONDED_BYTES = 100 * _MB
_FAILING_BYTES = 200 * _MB
_FAILS_AT_S = 15.0
# How long before its entry a road tunnel is known, and its length.
_KNOWN_S, _TUNNEL_S = 10.0, 5.0
# A failure's gap is compared with the gaps in this time before it.
_BEFORE_S = 5.0


@dataclass(frozen=True)
class Silence:
    """A time in which the satellite drops all packets, and the figure of its gap.

    `direction` is the one that drops; None means both.
    """

    figure: str
    begin_s: float
    direction: str | None = None

    @property
    def end_s(self) -> float:
        """Return when packets come through again."""
        return self.begin_s + _SILENT_S


# A silence lasts several times the longest allowed gap; before the next one, the satellite carries
# its part of the download again.
_SILENT_S = 2.0
SILENCES = (
    Silence("black-hole.satellite", 3.0),
    Silence("black-hole.satellite-forward", 7.5, "forward"),
)
# More than both paths carry until the last silence is over.
SILENT_BYTES = 40 * _MB


def run_bonding(settings: Settings) -> Result:
    """Download 100 MB over both paths, each alone, one path over MPTCP, and by split proxies."""
    result = Result("bonding")
    with both_hops(settings) as on:
        for name, paths in (
            (OURS, _BOTH),
            ("underpass-satellite", _BOTH[:1]),
            ("underpass-terrestrial", _BOTH[1:]),
        ):
            on.add(Underpass(name, None, paths=paths))
        on.add(UnderpassOverMptcp(TERRESTRIAL, SATELLITE))
        ways: Sequence[Way] = ("satellite", "terrestrial", "mptcp")
        for way in ways:
            on.add(SplitProxy(way))
        on.add(SplitProxy("mptcp", default_buffers=True))

        def one(access: Access, seed: int, deadline_s: float) -> Transfer:
            return access.download(_BONDED_BYTES, seed, deadline_s)

        done = on.in_turn([Series(subject, one) for subject in on.subjects], 3)
        for subject, transfers in zip(on.subjects, done, strict=True):
            result.records.append(
                transfer_record(
                    "bonding.rate",
                    subject,
                    transfers,
                    lambda t: t.bytes * 8 / seconds(on, t) / 1e6,
                )
            )
            curves = result.curves.setdefault("received, MB over s", {})
            curves[subject.name] = typical_curve(transfers)
        on.describe(result)
    return result


def run_outage(settings: Settings) -> Result:
    """Cut the terrestrial path 15 s into a download of 200 MB over both.

    Bonded, and pinned with a fallback, each over TCPCL and over QUIC tunnels; and over MPTCP.
    """
    result = Result("outage")
    with both_hops(settings) as on:
        on.add(Underpass(OURS, None, paths=_BOTH))
        on.add(Underpass("underpass-quic", None, paths=_BOTH, convergence_layer="quic"))
        on.add(_falling_back("underpass-failover", "tcpcl"))
        on.add(_falling_back("underpass-quic-failover", "quic"))
        on.add(UnderpassOverMptcp(TERRESTRIAL, SATELLITE))
        _failures(on, result, "outage", lambda hop, terminal: hop.block(terminal))
    return result


def run_black_hole(settings: Settings) -> Result:
    """Have each path drop all packets, and the satellite also in one direction only.

    Then block the satellite, announced 10 s before.
    """
    result = Result("black-hole")
    with both_hops(settings) as on:
        on.add(Underpass(OURS, None, paths=_BOTH))
        _failures(on, result, "black-hole", _drop_everything)
        _silent_satellite(on, result)
        _known_tunnel(on, result)
    return result


def _falling_back(name: str, layer: Literal["tcpcl", "quic"]) -> Underpass:
    """Make a pair that uses the terrestrial path, and the satellite if that fails."""

    def classes(satellite: str) -> list[dict[str, object]]:
        pinned = {"policy": "failover", "paths": ["terrestrial", satellite]}
        names = ("signalling", "interactive", "normal", "bulk")
        return [
            {"name": class_name, "priority": min(place, 2), **(pinned if place else {})}
            for place, class_name in enumerate(names)
        ]

    return Underpass(
        name,
        None,
        convergence_layer=layer,
        paths=_BOTH,
        terminal={"class": classes("satellite")},
        hub={"class": classes("beam")},
    )


@contextmanager
def both_hops(settings: Settings) -> Iterator[Bench]:
    """Build the test bed with both hops."""
    with Testbed(
        SATELLITE, terrestrial=TERRESTRIAL, sysctls=WIDE_WINDOWS, seed=settings.seed
    ) as testbed:
        yield Bench(testbed, settings)


def terrestrial_of(on: Bench) -> Satlink:
    """Return the terrestrial hop."""
    assert on.testbed.terrestrial is not None
    return on.testbed.terrestrial


def _drop_everything(hop: Satlink, _: str) -> None:
    hop.set_loss(1.0)


def _mend(hop: Satlink, terminal: str) -> None:
    hop.unblock(terminal)
    hop.set_loss(0.0)


def _failures(on: Bench, result: Result, name: str, fail: Callable[[Satlink, str], None]) -> None:
    """Download while the terrestrial path fails; record the longest gap from then on."""
    hop, terminal = terrestrial_of(on), on.testbed.terminal.name

    def one(access: Access, seed: int, deadline_s: float) -> Transfer:
        timer = threading.Timer(_FAILS_AT_S, fail, (hop, terminal))
        timer.start()
        try:
            return access.download(_FAILING_BYTES, seed, deadline_s)
        finally:
            timer.cancel()
            timer.join()
            _mend(hop, terminal)

    done = on.in_turn([Series(subject, one) for subject in on.subjects], 3)
    for subject, transfers in zip(on.subjects, done, strict=True):
        gaps = [
            longest_gap_ms(gaps_of(t, on.deadline_s()), _FAILS_AT_S, math.inf) for t in transfers
        ]
        broken = [t.bytes for t in transfers if not t.complete]
        figure = _figure_of(f"{name}.gap", subject.name)
        result.records.append(record(figure, subject.name, gaps, censored_bytes=broken))
        if f"{name}.rate" in FIGURES:
            rates = [_rate_behind_gap_percent(t) for t in transfers]
            result.records.append(record(f"{name}.rate", subject.name, rates))
        say(f"{name}: longest gaps {', '.join(f'{gap:.0f}' for gap in gaps)} ms")
        curves = result.curves.setdefault("received, MB over s", {})
        curves[subject.name] = typical_curve(transfers)
    on.describe(result)


def _silent_satellite(on: Bench, result: Result) -> None:
    """Download while the satellite is silent by turns; record each silence's longest gap."""
    hop = on.testbed.satlink

    def one(access: Access, seed: int, deadline_s: float) -> Transfer:
        timers = []
        for silence in SILENCES:
            for at_s, loss in ((silence.begin_s, 1.0), (silence.end_s, 0.0)):
                change = partial(hop.set_loss, loss, direction=silence.direction)
                timers.append(threading.Timer(at_s, change))
        for timer in timers:
            timer.start()
        try:
            return access.download(SILENT_BYTES, seed, deadline_s)
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()
            hop.set_loss(0.0)

    done = on.in_turn([Series(subject, one) for subject in on.subjects], 3)
    for subject, transfers in zip(on.subjects, done, strict=True):
        gaps = [gaps_in_silences_ms(transfer, on.deadline_s()) for transfer in transfers]
        broken = [t.bytes for t in transfers if not t.complete]
        for silence, of_silence in zip(SILENCES, zip(*gaps, strict=True), strict=True):
            told = ", ".join(f"{gap:.0f}" for gap in of_silence)
            say(f"{silence.figure}: longest gaps {told} ms")
            result.records.append(
                record(silence.figure, subject.name, of_silence, censored_bytes=broken)
            )


def gaps_in_silences_ms(transfer: Transfer, deadline_s: float) -> list[float]:
    """Return the longest gap of each silence of the satellite."""
    gaps = gaps_of(transfer, deadline_s)
    return [longest_gap_ms(gaps, silence.begin_s, silence.end_s) for silence in SILENCES]


def _figure_of(figure: str, subject: str) -> str:
    """Return the subject's own figure if there is one, else the common one."""
    experiment, part = figure.split(".")
    own = f"{experiment}.{subject.removeprefix('underpass-')}.{part}"
    return own if own in FIGURES else figure


def _rate_behind_gap_percent(transfer: Transfer) -> float:
    """Return the rate after the longest gap since the cut, in % of the satellite's."""
    since = [(at, count) for at, count in transfer.curve if at >= _FAILS_AT_S]
    if len(since) < 2:
        return 0.0
    steps = itertools.pairwise(since)
    _, (begin_s, begun) = max(steps, key=lambda step: step[1][0] - step[0][0])
    end_s, ended = since[-1]
    usable_bps = (SATELLITE.forward.rate_bps or 0) * HEADERS_LEAVE
    return 100 * 8 * (ended - begun) / max(1e-3, end_s - begin_s) / usable_bps


def _known_tunnel(on: Bench, result: Result) -> None:
    """Block the satellite for some seconds, announced to both nodes 10 s before."""
    terminal = on.testbed.terminal.name

    def one(subject: Underpass, access: Access, seed: int, deadline_s: float) -> Transfer:
        start, since_epoch = time.monotonic(), time.time()
        entry = _FAILS_AT_S
        on.testbed.satlink.schedule(terminal, [(start + entry, _TUNNEL_S)])
        tell = threading.Timer(
            entry - _KNOWN_S,
            subject.pair.plan_blockages,
            ([(since_epoch + entry, _TUNNEL_S)],),
            {"path": "satellite"},
        )
        tell.start()
        try:
            return access.download(_FAILING_BYTES, seed, deadline_s)
        finally:
            tell.join()
            on.testbed.satlink.schedule(terminal, [])
            subject.pair.plan_blockages([], path="satellite")

    ours = [subject for subject in on.subjects if isinstance(subject, Underpass)]
    done = on.in_turn([Series(subject, partial(one, subject)) for subject in ours], 3)
    for subject, transfers in zip(ours, done, strict=True):
        beyond = []
        for transfer in transfers:
            # The nodes move to the other path a round trip or more before the entry, and back a
            # round trip after the exit.
            moves_s = _FAILS_AT_S - 2 * SATELLITE.rtt_s
            back_s = _FAILS_AT_S + _TUNNEL_S + 2 * SATELLITE.rtt_s
            gaps = gaps_of(transfer, on.deadline_s())
            # A gap that begins before the move and ends after it counts for the move.
            before = longest_gap_ms(
                [gap for gap in gaps if gap[1] <= moves_s], moves_s - _BEFORE_S, moves_s
            )
            after = longest_gap_ms(gaps, moves_s, back_s)
            say(f"black-hole: {before:.0f} ms before a known tunnel, {after:.0f} ms in it")
            beyond.append(after - before)
        result.records.append(record("black-hole.known", subject.name, beyond))


def gaps_of(transfer: Transfer, deadline_s: float) -> list[tuple[float, float]]:
    """Return the beginnings and ends of the gaps between new bytes.

    In a transfer that did not complete, the last gap lasts until its deadline.
    """
    times = [at for at, _ in transfer.curve] or [0.0]
    if not transfer.complete:
        times.append(max(deadline_s, times[-1]))
    return list(itertools.pairwise(times))


def longest_gap_ms(gaps: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Return the longest gap that overlaps a span."""
    within = [later - earlier for earlier, later in gaps if begin_s <= later and earlier <= end_s]
    return 1000 * max(within, default=0.0)
