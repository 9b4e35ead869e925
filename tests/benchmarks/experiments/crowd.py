"""A crowd: 1,000 clients at once, 100 KB each."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from tests.benchmarks.bench import HEADERS_LEAVE, Series, Settings, bench, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.testbed.client.crowd import crowd
from tests.testbed.profile import PROFILE_G

_CLIENTS = 1000
_SIZE = 100_000


@dataclass
class _CrowdRun:
    times: list[float]
    missing: int
    last_byte_s: float | None

    @property
    def bytes(self) -> int:
        return len(self.times) * _SIZE


def run(settings: Settings) -> Result:
    """Measure the link's use until the last byte, and the slowest client against the median.

    The use counts payload and TCP/IP headers; its time leaves out the one round trip that no
    subject can avoid.
    """
    result = Result("crowd")
    rate_bps = PROFILE_G.forward.rate_bps
    assert rate_bps is not None
    with bench(PROFILE_G, settings) as on:
        done = on.in_turn([Series(subject, _one) for subject in on.subjects], 30)
        for subject, runs in zip(on.subjects, done, strict=True):
            result.samples[subject.name] = [run.times for run in runs]
            ended = [run.last_byte_s or on.deadline_s() for run in runs]
            use = [
                100 * run.bytes * 8 / HEADERS_LEAVE / (rate_bps * (end - PROFILE_G.rtt_s))
                for run, end in zip(runs, ended, strict=True)
            ]
            censored = [run.bytes for run in runs if run.missing]
            result.records.append(record("crowd-use.g", subject.name, use, censored_bytes=censored))
            spread = [
                end / statistics.median(run.times)
                for run, end in zip(runs, ended, strict=True)
                if run.times
            ]
            if spread:
                result.records.append(
                    record("crowd-spread.g", subject.name, spread, censored_bytes=censored)
                )
            say(f"crowd  {subject.name}: {statistics.median(use):.1f} % of the link")
            result.curves.setdefault("clients served over s", {})[subject.name] = [
                (round(at, 3), float(count)) for count, at in enumerate(sorted(runs[0].times), 1)
            ][::10]
        on.describe(result)
    return result


def _one(access: Access, _seed: int, deadline_s: float) -> _CrowdRun:
    via = access.route.proxy or (access.host, access.port)
    started = time.monotonic()
    times = crowd(
        access.client,
        access.host,
        clients=_CLIENTS,
        size=_SIZE,
        deadline_s=deadline_s,
        port=access.port,
        via=via,
    )
    served = [at for at in times if at is not None]
    missing = _CLIENTS - len(served)
    if missing:
        say(f"{missing} of {_CLIENTS} clients not served after {time.monotonic() - started:.0f} s")
    return _CrowdRun(served, missing, max(served) if not missing else None)
