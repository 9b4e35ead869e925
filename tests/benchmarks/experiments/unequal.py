"""One download over two very different paths (rate, delay, loss), and over the better one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks.bench import HEADERS_LEAVE, OURS, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.downloads import seconds, typical_curve
from tests.benchmarks.records import Result, record
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
# 16 pairs: by how much one path is faster, and nearer; the far one has a loss.
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
    # No idle time: it would undo what the downloads before the first run have measured.
    settings = dataclasses.replace(settings, idle_s=0.0, peer_runs=None)
    bonded, alone = _downloads(settings, result, LTE_AND_GEO, _NAMED_BYTES, "LTE and GEO")
    ideal_s = LTE_AND_GEO.ideal_s(_NAMED_BYTES)
    result.records += [
        record("unequal.rate", OURS, [8 * _NAMED_BYTES / took / 1e6 for took in bonded]),
        record("unequal.lte-geo", OURS, [100 * took / ideal_s for took in bonded]),
        record("unequal.lte-geo-alone", OURS, _of_single_percent(bonded, alone)),
    ]
    of_ideal, of_single = [], []
    settings = dataclasses.replace(settings, runs=1)
    for number, pair in enumerate(pairs(), 1):
        bonded, alone = _downloads(settings, result, pair, _PAIRS_BYTES, f"pair {number}")
        ideal_s = pair.ideal_s(_PAIRS_BYTES)
        of_ideal += [100 * took / ideal_s for took in bonded]
        of_single += _of_single_percent(bonded, alone)
        far = pair.far
        result.notes[f"pair {number}"] = (
            f"{far.forward.rate_bps} bit/s, {far.rtt_ms:.0f} ms, {100 * far.forward.loss:g} % lost "
            f"beside {_FAST_BPS} bit/s, {_NEAR_RTT_MS:.0f} ms: {of_ideal[-1]:.1f} % of the ideal "
            f"time, {of_single[-1]:.0f} % of the better path's rate"
        )
        say(f"unequal  {number}: {result.notes[f'pair {number}']}")
    result.records.append(record("unequal.pairs", OURS, of_ideal))
    result.records.append(record("unequal.pairs-alone", OURS, of_single))
    return result


def _downloads(
    settings: Settings, result: Result, pair: Pair, size: int, what: str
) -> tuple[list[float], list[float]]:
    """Return download times over both paths, and over the better one."""
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
        taken = [[seconds(on, transfer) for transfer in of] for of in (bonded, alone)]
    return taken[0], taken[1]


def _of_single_percent(bonded: list[float], alone: list[float]) -> list[float]:
    return [100 * single / both for both, single in zip(bonded, alone, strict=True)]
