"""Eight terminals share a beam by the plan, and two of them are in a fade."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from tests.benchmarks.bench import HEADERS_LEAVE, Settings, say
from tests.benchmarks.experiments.flows import run_flows, run_uploads
from tests.benchmarks.records import Result, part_of, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed import addresses, ports
from tests.testbed.control import BEAM, REPORTS, Control
from tests.testbed.node import Options, Pair, terminal_node
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_TERMINALS, _FADED = 8, 2
_BEAM_BPS = 8_000_000
_FAIR_BPS = _BEAM_BPS // _TERMINALS
# A fade of 6 dB, of what the plan gives each.
_PART = 0.25
_FADED_BPS = round(_PART * _FAIR_BPS)
# An efficiency below this is that of the fade.
_SEEN_BELOW = 0.4
_SECONDS = 240.0
# The fade begins, and then has been planned with; the times before and after these are compared.
_SETTLED_S, _FADES_S, _PLANNED_S = 20.0, 60.0, 140.0
_RUNS = 3

_Link = Literal["forward", "return"]


@dataclass(frozen=True)
class _Course:
    """One run: the others' goodput and that of the faded two, %; until the plan has the fade, s."""

    others: float
    faded: float
    planned: float


def run(settings: Settings) -> Result:
    """Let two of eight terminals fade while all download, and while all upload."""
    result = Result("shared-fade")
    result.told["underpass"] = f"{TOLD_PAIR}; nothing of the fade"
    if result.left_out(missing("underpass")):
        return result
    links: dict[str, _Link] = {"down": "forward", "up": "return"}
    for way, link in links.items():
        runs = [_course(link, settings.seed + number) for number in range(settings.runs or _RUNS)]
        for part in ("others", "faded", "planned"):
            values = [float(getattr(one, part)) for one in runs]
            made = record(f"shared-fade.{way}.{part}", "underpass", values)
            result.records.append(made)
            say(f"{made.id}: {made.median:.4g} {made.unit}")
    result.notes["measured"] = (
        f"each terminal's own link would carry the whole beam; those of {_FADED} then carry "
        f"{_FADED_BPS} bit/s both ways; goodput of the least of the others from {_PLANNED_S:.0f} s "
        f"to {_SECONDS:.0f} s against {_SETTLED_S:.0f} s to {_FADES_S:.0f} s"
    )
    return result


def _course(link: _Link, seed: int) -> _Course:
    # What a terminal may send is what the plan gives it: the links by themselves share nothing.
    with Testbed(PAPER_BEAM, terminals=_TERMINALS, seed=seed) as testbed:
        control = Control(testbed)
        control.register()
        options = Options(return_rate_bps=_FAIR_BPS, terminal=REPORTS, hub=control.hub_config)
        pair = Pair(testbed, options)
        accesses = [
            Access(terminal.client, pair.http_forward(place), addresses.ORIGIN, ports.HTTP)
            for place, terminal in enumerate(testbed.terminals)
        ]
        with ThreadPoolExecutor(1) as beside:
            planned = beside.submit(_fade, testbed, control, link)
            flows = (
                run_flows(accesses, _SECONDS, seed)
                if link == "forward"
                else run_uploads(accesses, testbed.origin, _SECONDS, seed)
            )
            planned_s = planned.result()
    before_bps, behind_bps = (
        [8 * (flow.bytes_at(end) - flow.bytes_at(begin)) / (end - begin) for flow in flows]
        for begin, end in ((_SETTLED_S, _FADES_S), (_PLANNED_S, _SECONDS))
    )
    pairs = zip(behind_bps[_FADED:], before_bps[_FADED:], strict=True)
    return _Course(
        others=min(100 * part_of(behind, before) for behind, before in pairs),
        faded=100 * sum(behind_bps[:_FADED]) / (_FADED * _FADED_BPS * HEADERS_LEAVE),
        planned=planned_s,
    )


def _fade(testbed: Testbed, control: Control, link: _Link) -> float:
    """Let the first terminals fade; return how long it took until both are planned so, s.

    A fade that is never planned with counts with the time until the run's end.
    """
    time.sleep(_FADES_S)
    for terminal in testbed.terminals[:_FADED]:
        fade = {"rate_bps": _FADED_BPS}
        testbed.satlink.request("set", terminal=terminal.name, link=fade)
    began = time.monotonic()
    while (since := time.monotonic() - began) < _SECONDS - _FADES_S:
        if all(_efficiency(control, link, index) < _SEEN_BELOW for index in range(_FADED)):
            return since
        time.sleep(0.5)
    return _SECONDS - _FADES_S


def _efficiency(control: Control, link: _Link, index: int) -> float:
    """Return the efficiency that the newest plan of a link has for a terminal."""
    path = f"/v1/beams/{BEAM}/plans/{link}?terminal={terminal_node(index)}"
    [line] = control.get(path)["lines"]
    return float(line["efficiency"])
