"""PEP and congestion control, after Liu et al. 2019: iperf3 with the proxy off and on."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.bench import Bench, Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects import Subject
from tests.benchmarks.subjects.direct import NoProxy, set_end_to_end
from tests.benchmarks.subjects.underpass import TransparentUnderpass
from tests.testbed import ports
from tests.testbed.profile import PROFILE_G
from tests.testbed.topology import Testbed

_BYTES = 1_000_000_000
_STEP_S = 0.1
_LINK_BPS = 140_000_000
_STEADY_AFTER_S = 10.0
_CONTROLS = ["bbr", "cubic", "hybla_bpf"]
_LIMIT_S = 700.0


@dataclass
class _Iperf:
    # Bytes of each step of a tenth of a second.
    steps: list[int]

    def bytes_at(self, seconds: float) -> int:
        return sum(self.steps[: round(seconds / _STEP_S)])

    def windows_bps(self) -> list[float]:
        """Return the rate over one second, at the end of each step."""
        width = round(1 / _STEP_S)
        return [sum(self.steps[end - width : end]) * 8 for end in range(width, len(self.steps) + 1)]

    def time_to_90_s(self) -> float:
        """Return when a second's window first reached 90 % of the link, or the whole time."""
        for place, rate in enumerate(self.windows_bps()):
            if rate >= 0.9 * _LINK_BPS:
                return 1 + place * _STEP_S
        return len(self.steps) * _STEP_S

    def steady_bps(self) -> float:
        windows = self.windows_bps()
        return statistics.median(windows[round(_STEADY_AFTER_S / _STEP_S) :] or windows)


def run(settings: Settings) -> Result:
    """Measure start-up and steady state apart, for each control of the origin, off and on."""
    result = Result("pep-and-cc")
    if not shutil.which("iperf3"):
        result.notes["left out"] = "iperf3 is not installed (.ci/setup --bench)"
        return result
    with Testbed(PROFILE_G, seed=settings.seed) as testbed:
        on = Bench(testbed, settings)
        on.add(TransparentUnderpass())
        on.add(NoProxy("cubic"))
        on.add(NoProxy("hybla_bpf"))
        on.testbed.start("iperf3", ["iperf3", "-s", "-p", str(ports.IPERF)], on.testbed.origin)
        direct = next((s for s in on.subjects if s.name == "no-proxy-cubic"), None)
        ours = next((s for s in on.subjects if s.name == "underpass"), None)
        for control in _CONTROLS:
            for label, subject in (("underpass", ours), ("no-proxy", direct)):
                if subject:
                    _measure(on, result, subject, f"{label}, origin {control}", control)
        result.notes |= on.notes()
    return result


def _measure(on: Bench, result: Result, subject: Subject, label: str, control: str) -> None:
    subject.before_series()
    try:
        set_end_to_end(on.testbed, control)
    except RuntimeError as error:
        say(f"{label} is left out: {error}")
        subject.after_series()
        return
    on.rest(subject)
    runs = []
    for number in range(on.runs(3)):
        on.testbed.satlink.seed(on.settings.seed + number)
        runs.append(_iperf(subject))
        on.drain()
    subject.after_series()
    for figure_id, values in (
        ("pep-and-cc.after-5s", [run.bytes_at(5) / 1e6 for run in runs]),
        ("pep-and-cc.to-90", [run.time_to_90_s() for run in runs]),
        ("pep-and-cc.steady", [run.steady_bps() / 1e6 for run in runs]),
    ):
        made = record(figure_id, label, values)
        result.records.append(made)
        say(f"{figure_id}  {label}: {made.median:.4g} {made.unit}")
    result.curves.setdefault("Mbit/s over s", {})[label] = [
        (round(1 + place * _STEP_S, 1), rate / 1e6)
        for place, rate in enumerate(runs[0].windows_bps())
    ][::5]


def _iperf(subject: Subject) -> _Iperf:
    """Run one download; a run over the limit is ended, and counts with what it had."""
    access = subject.access(ports.IPERF)
    argv = access.client.argv(
        *("iperf3", "-c", access.host, "-p", str(access.port), "-R", "-n", str(_BYTES)),
        *("-i", str(_STEP_S), "-J"),
    )
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as iperf:
        try:
            output, _ = iperf.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            iperf.send_signal(signal.SIGINT)
            output, _ = iperf.communicate(timeout=30)
    document: dict[str, Any] = json.loads(output)
    if not document.get("intervals"):
        raise RuntimeError(f"iperf3: {document.get('error', 'no intervals')}")
    return _Iperf([int(interval["sum"]["bytes"]) for interval in document["intervals"]])
