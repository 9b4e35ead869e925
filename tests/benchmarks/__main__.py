"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import comparison, subjects
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.campaign.course import (
    Course,
    begun_or_resumed,
    broken_off_by_signals,
    is_there,
    launcher,
    replace_volume,
)
from tests.benchmarks.campaign.manifest import CampaignError, Manifest, made_now
from tests.benchmarks.campaign.plan import VOLUMES, Entry, chosen
from tests.benchmarks.experiments import EXPERIMENTS
from tests.benchmarks.figures import FIGURES
from tests.benchmarks.processors import Processors
from tests.benchmarks.readme import write_readme
from tests.benchmarks.records import RESULTS
from tests.benchmarks.report import MixedError, summary, write_report
from tests.testbed import namespace
from tests.testbed.programs import missing

# Measurements that are not, or not yet, the project's results; git ignores this folder.
_OWN = Path(__file__).parents[2] / ".bench"
_IDLE_S = 60.0


def main() -> int:
    """Run what the command line says."""
    arguments = _parse()
    if arguments.command == "list":
        print("experiments:", *EXPERIMENTS, sep="\n  ")
        print("subjects:", *subjects.NAMES, sep="\n  ")
        print("figures:", *FIGURES, sep="\n  ")
        return 0
    try:
        if arguments.command == "report":
            _write(arguments.folder)
            return 0
        reason = namespace.unprivileged_reason() or missing("satlink")
        if reason:
            print(f"the benchmarks cannot run: {reason}", file=sys.stderr)
            return 1
        namespace.sweep()
        if arguments.command == "campaign":
            return _campaign(arguments)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        if arguments.command == "compare":
            return _compare(arguments)
        return _run(arguments)
    except (CampaignError, MixedError) as error:
        print(error, file=sys.stderr)
        return 1


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
        began, processors = time.monotonic(), Processors()
        result = EXPERIMENTS[name](settings)
        result.notes["processors"] = processors.told()
        runs = f"runs {settings.runs or 'as the experiment has it'}"
        if settings.peer_runs:
            runs += f", of the others at most {settings.peer_runs}"
        result.notes["settings"] = f"{runs}, idle {settings.idle_s:g} s, seeds from {settings.seed}"
        result.campaign = arguments.campaign
        result.took_s = round(time.monotonic() - began, 1)
        say(f"== {name} took {result.took_s:.0f} s: {result.save(arguments.into)}")
        if left_out := result.notes.get("left out"):
            say(f"left out: {left_out}")
        results.append(result)
        # A campaign's experiments run at the same time; the campaign makes the report at its end.
        if arguments.campaign is None:
            write_report(arguments.into)
    print(summary(results))
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    met = comparison.compare(
        arguments.revision,
        arguments.experiments,
        arguments.pairs,
        seed=arguments.seed,
        idle_s=arguments.idle_s,
        results=_OWN / "compare",
    )
    return 0 if met else 1


def _campaign(arguments: argparse.Namespace) -> int:
    """Measure the volumes one after the other, each as a campaign of its own; or run a trial."""
    began = time.monotonic()
    if arguments.experiments or arguments.scale < 1:
        names = [name for volume in arguments.volume for name in VOLUMES[volume]]
        entries = chosen(arguments.experiments or names, arguments.scale)
        fresh = made_now(entries, seed=arguments.seed, trial=True)
        return 0 if _measured(arguments, entries, _OWN / "trial", None, fresh) else 1
    for volume in arguments.volume:
        folder = _OWN / "campaigns" / volume
        left_s = None
        if arguments.portion is not None:
            left_s = 60 * arguments.portion - (time.monotonic() - began)
            if left_s <= 0:
                return 1
        entries = chosen(VOLUMES[volume])
        fresh = made_now(entries, seed=arguments.seed, trial=False)
        if is_there(RESULTS / volume, fresh) and not arguments.anew:
            say(f"volume {volume} is there, of this commit; --anew measures it again")
            continue
        say(f"volume {volume}")
        if not _measured(arguments, entries, folder, left_s, fresh):
            return 1
        replace_volume(folder, RESULTS, _OWN)
        _write(RESULTS)
    return 0


def _measured(
    arguments: argparse.Namespace,
    entries: Sequence[Entry],
    folder: Path,
    portion_s: float | None,
    fresh: Manifest,
) -> bool:
    """Begin or continue a campaign in a folder; return whether it is complete."""
    manifest = begun_or_resumed(folder, fresh, anew=arguments.anew)
    # Short trials need no idle minute.
    launch = launcher(folder, manifest, _IDLE_S * arguments.scale)
    course = Course(folder, manifest, entries, launch, portion_s=portion_s)
    with broken_off_by_signals(course):
        course.run()
    if manifest.ended is None:
        say(f"not complete: the same command goes on with it, in {folder}")
        return False
    _write(folder)
    return True


def _write(folder: Path) -> None:
    say(f"written: {write_report(folder)}")
    if folder == RESULTS:
        say(f"written: {write_readme()}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure by itself, save as JSON, and write a report")
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
    run.add_argument("--idle-s", type=float, default=_IDLE_S, help="idle time before first runs")
    run.add_argument("--into", type=Path, default=_OWN / "runs", help="folder of the results")
    # A campaign starts its experiments with this option.
    run.add_argument("--campaign", help=argparse.SUPPRESS)
    campaign = commands.add_parser(
        "campaign", help="measure everything on this commit, or go on with it; eleven hours"
    )
    campaign.add_argument(
        "--portion", type=float, metavar="MINUTES", help="begin only what is done within them"
    )
    campaign.add_argument(
        "--volume", nargs="+", choices=VOLUMES, default=list(VOLUMES), help="only these volumes"
    )
    campaign.add_argument("--anew", action="store_true", help="forget what was begun")
    campaign.add_argument(
        "--experiments", nargs="+", default=[], metavar="NAME", help="only these: a trial"
    )
    campaign.add_argument(
        "--scale", type=_part, default=1.0, help="this part of the runs and the idle time: a trial"
    )
    compare = commands.add_parser(
        "compare",
        help="compare the way of the data with that of another commit; two hours",
    )
    compare.add_argument("revision", metavar="REV", help="the other commit, as git names it")
    compare.add_argument(
        "--experiments",
        nargs="+",
        choices=comparison.RUNS,
        default=list(comparison.RUNS),
        metavar="NAME",
        help=f"only these of {', '.join(comparison.RUNS)}",
    )
    compare.add_argument("--pairs", type=_count, default=10, help="pairs of runs of each")
    compare.add_argument("--idle-s", type=float, default=5.0, help="idle time before first runs")
    for command in (run, campaign, compare):
        command.add_argument("--seed", type=int, default=1, help="seed of the first run of each")
    commands.add_parser("list", help="show the names of experiments, subjects and figures")
    report = commands.add_parser("report", help="write a folder's report again from its JSON")
    report.add_argument("folder", nargs="?", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.command in ("run", "campaign"):
        unknown = set(arguments.experiments) - set(EXPERIMENTS)
        if unknown:
            parser.error(f"no such experiment: {', '.join(sorted(unknown))}; see `list`")
    if arguments.command == "run":
        arguments.experiments = arguments.experiments or list(EXPERIMENTS)
    return arguments


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _part(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("more than 0, at most 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
