"""One download over two very different paths (rate, delay, loss), and over the better one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.benchmarks.bench import HEADERS_LEAVE, OURS, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.downloads import seconds, typical_curve
from tests.benchmarks.records import Record, Result, part_of, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.client.transfer import Transfer
from tests.testbed.node import PathName
from tests.testbed.profile import Link, Profile, symmetric
from tests.testbed.topology import Testbed

_MB = 1_000_000
_NAMED_BYTES, _PAIRS_BYTES = 200 * _MB, 100 * _MB
# Traffic before the first run, by which the nodes measure both paths.
_WARMING_BYTES = 20 * _MB
_BOTH: tuple[PathName, ...] = ("satellite", "terrestrial")
# 16 pairs: by how much the near path is faster, and nearer; the far one has a loss. Mirrored, the
# far path is the faster one.
_RATIOS = (1, 4, 10, 20)
_LOSSES = (0.0, 0.005, 0.01, 0.02)
_FAST_BPS, _NEAR_RTT_MS = 40_000_000, 40.0


@dataclass(frozen=True)
class Pair:
    """Two hops: the far one in the satellite's place."""

    near: Profile
    far: Profile

    def ideal_s(self, size: int) -> float:
        """Return the t that solves sum of rate · (t - RTT) = size, rates after headers and loss."""
        hops = sorted((self.near, self.far), key=lambda hop: hop.rtt_s)
        bits, rate, spent = size * 8.0, 0.0, 0.0
        for hop in hops:
            # Do the nearer paths alone finish before this one's first byte comes?
            if rate and (bits + spent) / rate <= hop.rtt_s:
                break
            rate += usable_bps(hop)
            spent += usable_bps(hop) * hop.rtt_s
        return (bits + spent) / rate

    @property
    def better(self) -> PathName:
        """Return the hop that alone carries more."""
        is_near = usable_bps(self.near) >= usable_bps(self.far)
        return "terrestrial" if is_near else "satellite"


def usable_bps(hop: Profile) -> float:
    """Return a hop's rate after headers and loss, bit/s."""
    assert hop.forward.rate_bps is not None
    return hop.forward.rate_bps * HEADERS_LEAVE * (1 - hop.forward.loss)


def hop(name: str, rate_bps: int, rtt_ms: float, loss: float = 0.0) -> Profile:
    """Make a hop with a buffer of a round trip, at least 50 ms."""
    delay_ms = rtt_ms / 2
    link = Link(rate_bps=rate_bps, delay_ms=delay_ms, queue_ms=max(50.0, rtt_ms))
    return symmetric(name, link).with_loss(loss)


LTE_AND_GEO = Pair(near=hop("lte", 40_000_000, 70.0), far=hop("geo", 20_000_000, 640.0, loss=0.005))


@dataclass(frozen=True)
class Download:
    """What came of a download, bytes, and until when, s: its last byte, or its deadline."""

    bytes: int
    took_s: float
    complete: bool

    @property
    def rate_bps(self) -> float:
        """Return its goodput, bit/s."""
        return 8 * self.bytes / self.took_s


def mirrored_pairs() -> Iterator[Pair]:
    """Make the pairs whose far path is the faster one; between paths that are alike there is none.

    Each has the rates, delays and loss of one of the 16, with the rates changed over.
    """
    for pair in pairs():
        near, far = pair.near.forward.rate_bps, pair.far.forward.rate_bps
        assert near is not None
        assert far is not None
        if near != far and pair.near.rtt_ms != pair.far.rtt_ms:
            yield Pair(
                near=hop("near", far, pair.near.rtt_ms),
                far=hop("far", near, pair.far.rtt_ms, loss=pair.far.forward.loss),
            )


def pairs() -> Iterator[Pair]:
    """Make the 16 pairs."""
    for place, (rate, delay) in enumerate(itertools.product(_RATIOS, _RATIOS)):
        loss = _LOSSES[(place + place // len(_RATIOS)) % len(_LOSSES)]
        yield Pair(
            near=hop("near", _FAST_BPS, _NEAR_RTT_MS),
            far=hop("far", _FAST_BPS // rate, _NEAR_RTT_MS * delay, loss=loss),
        )


def run(settings: Settings) -> Result:
    """Download over LTE and GEO, and over 16 pairs: over both paths, and over the better one."""
    result = Result("unequal")
    settings = _without_peers(settings)
    bonded, alone = _downloads(settings, result, LTE_AND_GEO, _NAMED_BYTES, "LTE and GEO")
    ideal_s = LTE_AND_GEO.ideal_s(_NAMED_BYTES)
    result.records += [
        _record("unequal.rate", [one.rate_bps / 1e6 for one in bonded], bonded),
        _record("unequal.lte-geo", [100 * one.took_s / ideal_s for one in bonded], bonded),
        _record("unequal.lte-geo-alone", _of_single_percent(bonded, alone), bonded),
    ]
    _measure_pairs(settings, result, pairs())
    return result


def run_mirrored(settings: Settings) -> Result:
    """Download over the pairs whose far path is the faster one."""
    result = Result("unequal-mirrored")
    _measure_pairs(_without_peers(settings), result, mirrored_pairs())
    return result


def _without_peers(settings: Settings) -> Settings:
    # No idle time: it would undo what the downloads before the first run have measured.
    return dataclasses.replace(settings, idle_s=0.0, peer_runs=None)


def _measure_pairs(settings: Settings, result: Result, every: Iterable[Pair]) -> None:
    """Download once over each pair, and add the two figures of them all."""
    of_ideal, of_single = [], []
    done: list[Download] = []
    settings = dataclasses.replace(settings, runs=1)
    for number, pair in enumerate(every, 1):
        bonded, alone = _downloads(settings, result, pair, _PAIRS_BYTES, f"pair {number}")
        ideal_s = pair.ideal_s(_PAIRS_BYTES)
        of_ideal += [100 * one.took_s / ideal_s for one in bonded]
        of_single += _of_single_percent(bonded, alone)
        done += bonded
        near, far = pair.near, pair.far
        result.notes[f"pair {number}"] = (
            f"{far.forward.rate_bps} bit/s, {far.rtt_ms:.0f} ms, {100 * far.forward.loss:g} % lost "
            f"beside {near.forward.rate_bps} bit/s, {near.rtt_ms:.0f} ms: {of_ideal[-1]:.1f} % of "
            f"the ideal time, {of_single[-1]:.0f} % of the better path's rate"
        )
        say(f"{result.experiment}  {number}: {result.notes[f'pair {number}']}")
    result.records.append(_record(f"{result.experiment}.pairs", of_ideal, done))
    result.records.append(_record(f"{result.experiment}.pairs-alone", of_single, done))


def _record(figure: str, values: list[float], bonded: list[Download]) -> Record:
    cut = [one.bytes for one in bonded if not one.complete]
    return record(figure, OURS, values, censored_bytes=cut)


def _downloads(
    settings: Settings, result: Result, pair: Pair, size: int, what: str
) -> tuple[list[Download], list[Download]]:
    """Return the downloads over both paths, and over the better one."""
    with Testbed(
        pair.far, terrestrial=pair.near, sysctls=WIDE_WINDOWS, seed=settings.seed
    ) as testbed:
        on = Bench(testbed, settings)
        on.add(Underpass(OURS, None, told="nothing", paths=_BOTH))
        on.add(Underpass(f"underpass-{pair.better}", None, told="nothing", paths=[pair.better]))
        for subject in on.subjects:
            subject.access().download(_WARMING_BYTES, settings.seed, settings.cap_s)
            on.drain()

        def one(access: Access, seed: int, deadline_s: float) -> Transfer:
            return access.download(size, seed, deadline_s)

        bonded, alone = on.in_turn([Series(subject, one) for subject in on.subjects], 3)
        if pair is LTE_AND_GEO:
            curves = result.curves.setdefault("received, MB over s", {})
            for subject, transfers in zip(on.subjects, (bonded, alone), strict=True):
                curves[subject.name] = typical_curve(transfers)
        result.notes |= {f"{what}, {key}": value for key, value in on.notes().items()}
        result.told |= on.told()
        done = [
            [Download(one.bytes, seconds(on, one), one.complete) for one in of]
            for of in (bonded, alone)
        ]
    return done[0], done[1]


def _of_single_percent(bonded: list[Download], alone: list[Download]) -> list[float]:
    return [
        100 * part_of(both.rate_bps, single.rate_bps)
        for both, single in zip(bonded, alone, strict=True)
    ]
