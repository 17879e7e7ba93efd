"""`gnnsafe bench` runs a plan and keeps its records; `gnnsafe report` reads them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from gnnsafe import __version__
from gnnsafe.bench import paper, search, store
from gnnsafe.bench.cores import each
from gnnsafe.bench.plan import Plan, datasets_at_hand, read_plan
from gnnsafe.bench.recipes import Protocol
from gnnsafe.bench.study import Task, code_version, tasks
from gnnsafe.cli.options import names, positive, progress_bar
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
        "methods by mean AUROC, a table per protocol. NAMES are separated by commas: --datasets cora,twitch --methods "
        "gnnsafe,energy-ft",
        epilog="Protocol 'paper' is as the published runs: their margins, and scores of isolated nodes decay. "
        "'rigorous' has one pair of margins for all shifts and keeps those scores; under structure and feature shift "
        "only ID test nodes are told from what became of them, and 'rewire' is a second structure shift; a seed draws "
        "the split too, and under label shift the classifier has the ID classes only. Without --search, learning rate "
        "and margins are those of the published runs, or common to all shifts and chosen by no figure. With it, in the "
        f"cells of seed 0 and for all seeds: the learning rate ({', '.join(map(str, paper.LEARNING_RATES))}) with the "
        "lowest ID validation loss for each objective, then margins t_in (-9, -7, -5), t_out (-1, -2, -3, -4) and "
        "weight λ (0.01, 0.1, 1) of Energy FT and GNNSafe++ with the highest AUROC of ID validation nodes against half "
        "of the exposure nodes, held out from the trials' training; never by test data. 'paper' has a choice for each "
        "shift, 'rigorous' one for all of a data set's shifts in the plan. Records say how each value was chosen; "
        "trials are kept in the folder's 'search' and are not run twice.",
    )
    parser.add_argument("--datasets", metavar="NAMES", type=names, help="(default: the paper's that are at hand)")
    parser.add_argument(
        "--shifts", metavar="NAMES", type=names, help="(default: the paper's, planted-feature, planted-structure, and, "
        "unless the protocol is 'paper', rewire)",
    )  # fmt: skip
    parser.add_argument(
        "--methods", metavar="NAMES", type=names, help="as the table names them (default: all); a name that ends in "
        ".py is a file of your own, whose classes derived from gnnsafe.methods.Method are run, alone and propagated",
    )  # fmt: skip
    parser.add_argument("--backbones", metavar="NAMES", type=names, help="(default: gcn)")
    parser.add_argument("--seeds", metavar="N", type=positive, help="how many: 0, 1, … (default: 5)")
    parser.add_argument(
        "--protocol", choices=get_args(Protocol), help="see below (default: paper for what the paper's tables have, "
        "rigorous for all else)",
    )  # fmt: skip
    parser.add_argument("--epochs", metavar="N", type=positive, help="of training (default: 200)")
    parser.add_argument(
        "--search", action="store_true", default=None, help="choose learning rate and margins first by the paper's "
        "grids: 3 trainings for each objective, 36 more for Energy FT and for GNNSafe++ (see below)",
    )  # fmt: skip
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
        "comparable with the last ones (another version, data or settings) are left out and counted.",
    )
    parser.add_argument(
        "results", metavar="FOLDER", nargs="?", type=Path, default=FOLDER, help=f"with records (default: {FOLDER})"
    )
    parser.add_argument("--protocol", choices=get_args(Protocol), help="(default: a table for each)")
    parser.set_defaults(command=_report)


def _bench(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.out
    plan = _plan(arguments)
    for dataset in plan.without_shifts():
        print(f"gnnsafe: {dataset} is left out, it has none of the shifts {', '.join(plan.shifts)}", file=sys.stderr)
    work = tasks(plan, root=arguments.data, version=code_version(__version__), folder=store.opened(folder))
    for step in search.STEPS if plan.search else ():
        trials, kept = search.trials(work, step), store.opened(folder / search.FOLDER)
        if not trials:
            continue
        if not _carried_out(trials, kept, arguments.jobs, "trial", f" of {step.name}"):
            return 130
        work = search.settled(work, step, store.read(kept)[0])
        failed = len(_left(trials, kept))
        if failed:
            print(f"gnnsafe: {failed} trials failed, and their values are not chosen", file=sys.stderr)
    if not _carried_out(work, folder, arguments.jobs, "cell"):
        return 130
    return _print_order(folder, {run.key: run.protocol for task in work for run in task.runs()})


def _carried_out(work: Sequence[Task], folder: Path, jobs: int | None, noun: str, purpose: str = "") -> bool:
    """Carry out what is not kept in the folder yet; whether it came to an end."""
    left = _left(work, folder)
    kept, names = len(work) - len(left), f"{noun}s{purpose}"
    count = f"1 {noun}{purpose}" if len(work) == 1 else f"{len(work)} {names}"
    print(f"{count}, {kept} of them finished before; records are kept in {folder}", file=sys.stderr)
    try:
        with progress_bar() as progress:
            bar = progress.add_task(names.capitalize(), total=len(work), completed=kept)
            for _ in each(Task.carry_out, left, jobs=jobs):
                progress.advance(bar)
    except KeyboardInterrupt:
        kept = len(work) - len(_left(work, folder))
        print(f"gnnsafe: interrupted; {kept} of {len(work)} {names} are kept in {folder}", file=sys.stderr)
        return False
    return True


def _left(work: Sequence[Task], folder: Path) -> list[Task]:
    finished = {record.key for record in store.read(folder)[0] if not record.error}
    return [task for task in (task.without(finished) for task in work) if task.recipes]


def _plan(arguments: argparse.Namespace) -> Plan:
    settings = {} if arguments.plan is None else read_plan(arguments.plan)
    options = ("datasets", "shifts", "methods", "backbones", "seeds", "protocol", "epochs", "search")
    settings |= {name: value for name in options if (value := getattr(arguments, name)) is not None}
    return Plan(**{"datasets": datasets_at_hand(arguments.data), **settings})


def _report(arguments: argparse.Namespace) -> int:
    records = store.read(arguments.results)[0]
    chosen = {record.key: record.protocol for record in records if arguments.protocol in (None, record.protocol)}
    if not chosen:
        kind = f" of protocol {arguments.protocol}" if arguments.protocol else ""
        raise InputError(f"'{arguments.results}' must hold records of 'gnnsafe bench'{kind} (got none)")
    return _print_order(arguments.results, chosen)


def _print_order(folder: Path, preferred: Mapping[tuple[Hashable, ...], str]) -> int:
    """Print the order of methods under each protocol of the preferred runs (key → protocol), and what is not in it.

    1 where a preferred run failed.
    """
    records, broken = store.read(folder)
    protocols = set(preferred.values())
    selection = store.select([record for record in records if record.protocol in protocols], preferred)
    console = Console(highlight=False, markup=False, emoji=False)
    for table in sorted({(record.protocol, record.backbone) for record in selection.records}):
        chosen = [record for record in selection.records if (record.protocol, record.backbone) == table]
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
