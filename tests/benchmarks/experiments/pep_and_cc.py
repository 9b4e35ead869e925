"""PEP and congestion control, after Liu et al. 2019: iperf3 with the proxy off and on."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.benchmarks.bench import HEADERS_LEAVE, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.direct import NoProxy
from tests.benchmarks.subjects.underpass import TransparentUnderpass
from tests.testbed import ports
from tests.testbed.profile import PROFILE_G
from tests.testbed.topology import Testbed

_BYTES = 1_000_000_000
_STEP_S = 0.1
_LINK_BPS = 140_000_000
_STEADY_AFTER_S = 10.0


@dataclass
class Course:
    """The bytes that the client has received over time, at most at the link's rate.

    Behind a proxy, bytes that wait for a repair reach the client in one burst when the gap is
    filled, over a network much faster than the link. A window of a second could then show more
    than the link's rate. So a burst is spread over the time that it took on the link, only
    towards later steps.
    """

    # Bytes in each step of a tenth of a second, as iperf3 reports them.
    steps: list[int]
    complete: bool = True

    @property
    def total(self) -> int:
        """Return all bytes of the course."""
        return sum(self.steps)

    @property
    def seconds(self) -> float:
        """Return the duration, to a step."""
        return len(self.steps) * _STEP_S

    @property
    def last_byte_s(self) -> float | None:
        """Return when the download was complete, None if it was ended before."""
        return self.seconds if self.complete else None

    def bytes_at(self, seconds: float) -> int:
        """Return the bytes received by then, bursts included."""
        return sum(self.steps[: round(seconds / _STEP_S)])

    def spread(self) -> list[float]:
        """Return the bytes of each step; bytes above the link's rate move to the next step."""
        most = _LINK_BPS * HEADERS_LEAVE * _STEP_S / 8
        spread, waiting = [], 0.0
        for step in self.steps:
            waiting += step
            spread.append(min(waiting, most))
            waiting -= spread[-1]
        return spread

    def windows_bps(self) -> list[float]:
        """Return the rate over one second, at the end of each step."""
        width, spread = round(1 / _STEP_S), self.spread()
        return [sum(spread[end - width : end]) * 8 for end in range(width, len(spread) + 1)]

    def time_to_90_s(self) -> float:
        """Return when a one-second window first reached 90 % of the link, or the whole time."""
        for place, rate in enumerate(self.windows_bps()):
            if rate >= 0.9 * _LINK_BPS:
                return 1 + place * _STEP_S
        return self.seconds

    def steady_bps(self) -> float:
        """Return the mean rate after start-up, or of the whole if nothing follows start-up."""
        after = self.steps[round(_STEADY_AFTER_S / _STEP_S) :] or self.steps
        return sum(after) * 8 / (len(after) * _STEP_S)


def run(settings: Settings) -> Result:
    """Measure start-up and steady state for each congestion control, with the proxy off and on."""
    result = Result("pep-and-cc")
    if not shutil.which("iperf3"):
        result.notes["left out"] = "iperf3 is not installed (.ci/setup --bench)"
        return result
    with Testbed(PROFILE_G, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        ours = TransparentUnderpass()
        plain = [NoProxy("bbr"), NoProxy("cubic"), NoProxy("hybla_bpf", "no-proxy-hybla")]
        for subject in (ours, *plain):
            if subject.name in settings.subjects:
                on.add(subject)
        testbed.start("iperf3", ["iperf3", "-s", "-p", str(ports.IPERF)], testbed.origin)
        series: list[Series[Course]] = []
        labels: list[str] = []
        for direct in plain:
            if direct not in on.subjects:
                continue
            if ours in on.subjects:
                series.append(Series(ours, _iperf, partial(ours.behind, direct)))
                labels.append(f"underpass, origin {direct.congestion_control}")
            series.append(Series(direct, _iperf))
            labels.append(f"no-proxy, origin {direct.congestion_control}")
        for each, label, runs in zip(series, labels, on.in_turn(series, 3), strict=True):
            _report(result, label, runs)
            result.told[label] = each.subject.told
        result.notes |= on.notes()
    result.notes["measured"] = (
        "the client's bytes by iperf3 each tenth of a second; `to-90` and the plot count them no "
        "faster than the link can bring payload: a burst after a repaired gap is spread"
    )
    return result


def _report(result: Result, label: str, runs: list[Course]) -> None:
    cut = [course.total for course in runs if course.last_byte_s is None]
    for figure_id, values in (
        ("pep-and-cc.after-5s", [course.bytes_at(5) / 1e6 for course in runs]),
        ("pep-and-cc.to-90", [course.time_to_90_s() for course in runs]),
        ("pep-and-cc.steady", [course.steady_bps() / 1e6 for course in runs]),
    ):
        made = record(figure_id, label, values, censored_bytes=cut)
        result.records.append(made)
        say(
            f"{figure_id}  {label}: {made.median:.4g} {made.unit}"
            + (f", {made.censored} of {made.n} censored" if made.censored else "")
        )
    result.curves.setdefault("Mbit/s over s", {})[label] = [
        (round(1 + place * _STEP_S, 1), rate / 1e6)
        for place, rate in enumerate(runs[0].windows_bps())
    ][::5]


def _iperf(access: Access, _seed: int, deadline_s: float) -> Course:
    """Run one download; a run over the limit is ended, and counts with the bytes it had."""
    argv = access.client.argv(
        *("iperf3", "-c", access.host, "-p", str(ports.IPERF), "-R", "-n", str(_BYTES)),
        *("-i", str(_STEP_S), "-J"),
    )
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as iperf:
        complete = True
        try:
            output, _ = iperf.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            complete = False
            # iperf3 writes its results so far.
            iperf.send_signal(signal.SIGINT)
            output, _ = iperf.communicate(timeout=30)
    return course_of(json.loads(output or "{}"), deadline_s, complete=complete)


def course_of(document: dict[str, Any], deadline_s: float, *, complete: bool) -> Course:
    """Read iperf3's report; a run over the limit may have received nothing."""
    steps = [int(interval["sum"]["bytes"]) for interval in document.get("intervals", [])]
    if not steps and complete:
        raise RuntimeError(f"iperf3: {document.get('error', 'no intervals')}")
    return Course(steps or [0] * round(deadline_s / _STEP_S), complete)
