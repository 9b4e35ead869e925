"""Routes through contact plans: 4,000 queries in a small plan, single changes in a large one."""

from __future__ import annotations

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed.programs import example_output

_RUNS = 5


def run(settings: Settings) -> Result:
    """Measure the router on one core, each run with new contact plans."""
    result = Result("sabr")
    result.told["underpass"] = "1,000 contacts of 50 nodes; 100,000 contacts of 500 nodes"
    told = [example_output("underpass-routing", "sabr") for _ in range(settings.runs or _RUNS)]
    figures = {"sabr.queries": [1_000 * run["queries_s"] for run in told]}
    for kind in told[0]["changes"]:
        times = [run["changes"][kind]["ms"] for run in told]
        figures[f"sabr.{kind}-median"] = [each[len(each) // 2] for each in times]
        figures[f"sabr.{kind}-longest"] = [each[-1] for each in times]
    for figure, values in figures.items():
        made = record(figure, "underpass", values)
        say(f"{figure}: median {made.median:.4g} {made.unit}")
        result.records.append(made)
    result.notes["distribution"] = told[0]
    return result
