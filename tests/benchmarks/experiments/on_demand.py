"""A return link whose capacity has to be requested."""

from __future__ import annotations

import dataclasses
from functools import partial

from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.downloads import goodput_percent, transfer_record
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.testbed import ports
from tests.testbed.client.echo import echo_times
from tests.testbed.client.transfer import Transfer
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed

_SIZE = 10_000_000
_ECHOES = 60
# Not a multiple of a frame, so that echoes meet all parts of it.
_EACH_S = 0.53
_PATIENCE_S = 30.0
_DEMAND = {"frame_ms": 100.0, "grant_ms": PROFILE_V.rtt_ms, "constant": 0.05}


@dataclasses.dataclass(frozen=True)
class _Run:
    """An upload, and echoes on the idle link before it, s each."""

    upload: Transfer
    echoes_s: list[float]

    @property
    def last_byte_s(self) -> float | None:
        """Return the upload's last byte."""
        return self.upload.last_byte_s


def run(settings: Settings) -> Result:
    """Time echoes on the idle link, then an upload of 10 MB."""
    result = Result("on-demand")
    return_ = dataclasses.replace(PROFILE_V.return_, other={"demand": _DEMAND})
    profile = dataclasses.replace(PROFILE_V, return_=return_)
    rate_bps = return_.rate_bps
    assert rate_bps is not None
    with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.start_untold()
        series = [Series(subject, partial(_one, subject)) for subject in on.subjects]
        for subject, runs in zip(on.subjects, on.in_turn(series, 5), strict=True):
            result.records.append(
                transfer_record(
                    "on-demand.upload",
                    subject,
                    [one.upload for one in runs],
                    lambda t: goodput_percent(on, t, rate_bps),
                )
            )
            rtt_s = profile.rtt_s
            medians = [quantile(one.echoes_s, 0.5) / rtt_s for one in runs]
            p95 = [1000 * (quantile(one.echoes_s, 0.95) - rtt_s) for one in runs]
            result.records.append(record("on-demand.echo", subject.name, medians))
            result.records.append(record("on-demand.echo-p95", subject.name, p95))
            result.samples[f"{subject.name}: echoes, s"] = [one.echoes_s for one in runs]
            say(f"on-demand  {subject.name}: echo {medians[0]:.2f} RTT, p95 RTT + {p95[0]:.0f} ms")
        on.describe(result)
    return result


def _one(subject: Subject, access: Access, seed: int, deadline_s: float) -> _Run:
    way = subject.access(ports.ECHO)
    try:
        with way.route.connect(way.client, way.host, way.port, timeout_s=_PATIENCE_S) as sock:
            # The first echo opens the connection at the far end.
            echo_times(sock, count=1, interval_s=0, timeout_s=_PATIENCE_S)
            echoes = echo_times(sock, count=_ECHOES, interval_s=_EACH_S, timeout_s=_PATIENCE_S)
    except OSError as error:
        say(f"on-demand  {subject.name}: {error}; all of the run's echoes count with the limit")
        echoes = [_PATIENCE_S] * _ECHOES
    return _Run(access.upload(_SIZE, seed, deadline_s), echoes)
