"""`gnnsafe bench` runs a plan and keeps its records; `gnnsafe report` reads them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Any, get_args

from gnnsafe import __version__
from gnnsafe.bench import store
from gnnsafe.bench.cores import each
from gnnsafe.bench.plan import Plan, datasets_at_hand, read_plan
from gnnsafe.bench.recipes import Protocol
from gnnsafe.bench.study import Task, code_version, tasks
from gnnsafe.cli.options import names, positive, progress_bar, terminal
from gnnsafe.errors import InputError
from gnnsafe.report.order import order_lines, order_table

__all__ = ["add_bench", "add_report"]

FOLDER = Path("results")
MOST_FAILURES = 10  # told one by one


def add_bench(commands: Any) -> None:
    """Add the command `bench`."""
    parser = commands.add_parser(
        "bench",
        help="every method on every data set and shift over several seeds, resumable; then their order",
        description="Runs data sets × shifts × backbones × seeds over all cores: in each of these cells every "
        "objective is trained once and scored by every method that reads it, alone and propagated (K=2). Records go "
        "to a folder cell by cell; interrupted or killed, the same command goes on where it was. Prints the order of "
        "methods by mean AUROC. NAMES are separated by commas: --datasets cora,twitch --methods gnnsafe,energy-ft",
        epilog="Protocol 'paper' is as the published runs: their margins, and scores of isolated nodes decay. "
        "'rigorous' has one pair of margins for all shifts and keeps those scores; under structure and feature shift "
        "only ID test nodes are told from what became of them, and 'rewire' is a second structure shift; a seed draws "
        "the split too, but for public splits. Not in it yet: a search for hyper-parameters, a head with the ID "
        "classes only.",
    )
    parser.add_argument("--datasets", metavar="NAMES", type=names, help="(default: the paper's that are at hand)")
    parser.add_argument(
        "--shifts", metavar="NAMES", type=names, help="(default: the paper's, planted-feature, planted-structure)"
    )
    parser.add_argument("--methods", metavar="NAMES", type=names, help="as the table names them (default: all)")
    parser.add_argument("--backbones", metavar="NAMES", type=names, help="(default: gcn)")
    parser.add_argument("--seeds", metavar="N", type=positive, help="how many: 0, 1, … (default: 5)")
    parser.add_argument("--protocol", choices=get_args(Protocol), help="see below (default: paper)")
    parser.add_argument("--epochs", metavar="N", type=positive, help="of training (default: 200)")
    parser.add_argument(
        "--plan", metavar="FILE", type=Path, help='a TOML file with any of the above: datasets = ["cora"], seeds = 3, '
        "…; options override it",
    )  # fmt: skip
    parser.add_argument("--jobs", metavar="N", type=positive, help="processes at once (default: one per core)")
    parser.add_argument("--data", metavar="FOLDER", help="the data root (default: $GNNSAFE_DATA)")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=FOLDER, help=f"where to keep records (default: {FOLDER})"
    )
    parser.set_defaults(command=_bench)


def add_report(commands: Any) -> None:
    """Add the command `report`."""
    parser = commands.add_parser(
        "report",
        help="the order of methods from the records of 'gnnsafe bench'",
        description="Prints the order of methods from the records in a folder, without running anything. Records not "
        "comparable with the last ones (another version, protocol, data or settings) are left out and counted.",
    )
    parser.add_argument(
        "results", metavar="FOLDER", nargs="?", type=Path, default=FOLDER, help=f"with records (default: {FOLDER})"
    )
    parser.add_argument("--protocol", choices=get_args(Protocol), help="(default: that of the last record)")
    parser.set_defaults(command=_report)


def _bench(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.out
    plan = _plan(arguments)
    for dataset in plan.without_shifts():
        print(f"gnnsafe: {dataset} is left out, it has none of the shifts {', '.join(plan.shifts)}", file=sys.stderr)
    work = tasks(plan, root=arguments.data, version=code_version(__version__), folder=store.opened(folder))
    left = _left(work, folder)
    kept = len(work) - len(left)
    cells = "1 cell" if len(work) == 1 else f"{len(work)} cells"
    print(f"{cells}, {kept} of them finished before; records are kept in {folder}", file=sys.stderr)
    try:
        with progress_bar() as progress:
            bar = progress.add_task("Cells", total=len(work), completed=kept)
            for _ in each(Task.carry_out, left, jobs=arguments.jobs):
                progress.advance(bar)
    except KeyboardInterrupt:
        kept = len(work) - len(_left(work, folder))
        print(f"gnnsafe: interrupted; {kept} of {len(work)} cells are kept in {folder}", file=sys.stderr)
        return 130
    return _print_order(folder, {run.key for task in work for run in task.runs()})


def _left(work: list[Task], folder: Path) -> list[Task]:
    finished = {record.key for record in store.read(folder)[0] if not record.error}
    return [task for task in (task.without(finished) for task in work) if task.recipes]


def _plan(arguments: argparse.Namespace) -> Plan:
    settings = {} if arguments.plan is None else read_plan(arguments.plan)
    options = ("datasets", "shifts", "methods", "backbones", "seeds", "protocol", "epochs")
    settings |= {name: value for name in options if (value := getattr(arguments, name)) is not None}
    return Plan(**{"datasets": datasets_at_hand(arguments.data), **settings})


def _report(arguments: argparse.Namespace) -> int:
    records = store.read(arguments.results)[0]
    chosen = {record.key for record in records if arguments.protocol in (None, record.protocol)}
    if not chosen:
        kind = f" of protocol {arguments.protocol}" if arguments.protocol else ""
        raise InputError(f"'{arguments.results}' must hold records of 'gnnsafe bench'{kind} (got none)")
    return _print_order(arguments.results, chosen)


def _print_order(folder: Path, preferred: Collection[Hashable]) -> int:
    """Print the order of methods, and what is not in it; 1 where a preferred run failed."""
    records, broken = store.read(folder)
    selection = store.select(records, preferred)
    console = terminal()
    for backbone in dict.fromkeys(record.backbone for record in selection.records):
        chosen = [record for record in selection.records if record.backbone == backbone]
        lead, *notes = order_lines(chosen)
        console.print(lead, soft_wrap=True)
        console.print(order_table(chosen, console))
        console.print(*notes, sep="\n", soft_wrap=True)
    failures = [record for record in selection.failures if record.key in preferred]
    lines = [f"{count} records {reason} are left out" for reason, count in selection.left_out.items()]
    lines += [f"{broken} lines in {folder} are no records and are left out"] * bool(broken)
    lines += [f"failed: {record.run}: {record.error}" for record in failures[:MOST_FAILURES]]
    lines += [f"{len(failures)} runs failed; 'gnnsafe bench' tries them again"] * bool(failures)
    for line in lines:
        print(f"gnnsafe: {line}", file=sys.stderr)
    return 1 if failures else 0
