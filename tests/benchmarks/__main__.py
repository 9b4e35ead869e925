"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.benchmarks import subjects
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.experiments import EXPERIMENTS
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.report import summary, write_report
from tests.testbed import namespace
from tests.testbed.programs import missing


def main() -> int:
    """Run what the command line says."""
    arguments = _parse()
    if arguments.command == "list":
        print("experiments:", *EXPERIMENTS, sep="\n  ")
        print("subjects:", *subjects.NAMES, sep="\n  ")
        print("figures:", *FIGURES, sep="\n  ")
        return 0
    if arguments.command == "report":
        say(f"written: {write_report()}")
        return 0
    reason = namespace.unprivileged_reason() or missing("satlink")
    if reason:
        print(f"the benchmarks cannot run: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    namespace.sweep()
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    settings = Settings(
        subjects=[name for name in subjects.NAMES if name in arguments.subjects],
        runs=arguments.runs,
        peer_runs=arguments.peer_runs,
        idle_s=arguments.idle_s,
        seed=arguments.seed,
    )
    results = []
    for name in arguments.experiments:
        say(f"== {name}")
        began = time.monotonic()
        result = EXPERIMENTS[name](settings)
        runs = f"runs {settings.runs or 'as the experiment has it'}"
        if settings.peer_runs:
            runs += f", of the others at most {settings.peer_runs}"
        result.notes["settings"] = (
            f"{runs}, idle {settings.idle_s:g} s, seeds from {settings.seed}, "
            f"{time.monotonic() - began:.0f} s in all"
        )
        say(f"== {name} took {time.monotonic() - began:.0f} s: {result.save()}")
        results.append(result)
        write_report()
    print(summary(results))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure, save as JSON, and write the report")
    run.add_argument(
        "experiments", nargs="*", metavar="NAME", help="experiments by name; all if none is given"
    )
    run.add_argument("--runs", type=int, help="runs of each series, instead of the experiment's")
    run.add_argument(
        "--peer-runs", type=int, help="runs of each series of the other subjects, at most"
    )
    run.add_argument(
        "--subjects", nargs="+", choices=subjects.NAMES, default=subjects.NAMES, metavar="SUBJECT"
    )
    run.add_argument("--idle-s", type=float, default=60.0, help="idle time before each series")
    run.add_argument("--seed", type=int, default=1, help="seed of the first run of each series")
    commands.add_parser("list", help="show the names of experiments, subjects and figures")
    commands.add_parser("report", help="write the report again from the saved JSON")
    arguments = parser.parse_args()
    if arguments.command == "run":
        unknown = set(arguments.experiments) - set(EXPERIMENTS)
        if unknown:
            parser.error(f"no such experiment: {', '.join(sorted(unknown))}; see `list`")
        arguments.experiments = arguments.experiments or list(EXPERIMENTS)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
