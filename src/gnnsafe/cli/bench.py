"""`gnnsafe bench`: runs a plan, or one of the paper's figures, and keeps the records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

from gnnsafe import __version__
from gnnsafe.bench import store
from gnnsafe.bench.cores import each
from gnnsafe.bench.figures import FIGURES, figure_cells
from gnnsafe.bench.plan import Cell, Plan, datasets_at_hand, read_plan
from gnnsafe.bench.recipes import Protocol, Recipe
from gnnsafe.bench.study import Task, carry_out, chains, code_version, tasks
from gnnsafe.cli.options import names, positive, progress_bar
from gnnsafe.cli.report import FOLDER, print_sections, selected
from gnnsafe.errors import InputError
from gnnsafe.report.plotting import altair
from gnnsafe.report.results import order_sections, write_figure

__all__ = ["add_bench"]


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
    parser.add_argument(
        "--figure", type=int, choices=FIGURES, help="run and draw one of the paper's figures instead: "
        + "; ".join(f"{number} {text}" for number, text in FIGURES.items()) + " (with --seeds, --epochs alone)",
    )  # fmt: skip
    parser.add_argument("--jobs", metavar="N", type=positive, help="processes at once (default: one per core)")
    parser.add_argument("--data", metavar="FOLDER", help="the data root (default: $GNNSAFE_DATA)")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=FOLDER, help=f"where to keep records (default: {FOLDER})"
    )
    parser.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.out
    if arguments.figure is not None:
        folder, cells = folder / f"figure-{arguments.figure}", _figure_cells(arguments)
    else:
        plan = _plan(arguments)
        for dataset in plan.without_shifts():
            print(
                f"gnnsafe: {dataset} is left out, it has none of the shifts {', '.join(plan.shifts)}", file=sys.stderr
            )
        cells = plan.cells()
    work = tasks(cells, root=arguments.data, version=code_version(__version__), folder=store.opened(folder))
    if not _carried_out(work, folder, arguments.jobs):
        return 130
    records, code = selected(folder, {run.key for task in work for run in task.runs()})
    if records and arguments.figure is not None:
        for path in write_figure(arguments.figure, records, folder):
            print(f"Figure: {path}")
    elif records:
        print_sections(order_sections(records))
        print(f"Tables and charts: gnnsafe report {folder}")
    return code


def _figure_cells(arguments: argparse.Namespace) -> list[tuple[Cell, list[Recipe]]]:
    altair()
    for option in ("datasets", "shifts", "methods", "backbones", "protocol", "plan"):
        if getattr(arguments, option) is not None:
            raise InputError(f"'--{option}' must not stand beside '--figure' (got both); a figure says what it runs")
    seeds = arguments.seeds or (1 if arguments.figure == 1 else 5)
    return figure_cells(arguments.figure, seeds, arguments.epochs or 200, arguments.data)


def _carried_out(work: list[Task], folder: Path, jobs: int | None) -> bool:
    """Run what is not finished; False where it was interrupted."""
    left = _left(work, folder)
    kept = len(work) - len(left)
    cells = "1 cell" if len(work) == 1 else f"{len(work)} cells"
    print(f"{cells}, {kept} of them finished before; records are kept in {folder}", file=sys.stderr)
    try:
        with progress_bar() as progress:
            bar = progress.add_task("Cells", total=len(work), completed=kept)
            for done in each(carry_out, chains(left), jobs=jobs):
                progress.advance(bar, done)
    except KeyboardInterrupt:
        kept = len(work) - len(_left(work, folder))
        print(f"gnnsafe: interrupted; {kept} of {len(work)} cells are kept in {folder}", file=sys.stderr)
        return False
    return True


def _left(work: list[Task], folder: Path) -> list[Task]:
    finished = {record.key for record in store.read(folder)[0] if not record.error}
    return [task for task in (task.without(finished) for task in work) if task.recipes]


def _plan(arguments: argparse.Namespace) -> Plan:
    settings = {} if arguments.plan is None else read_plan(arguments.plan)
    options = ("datasets", "shifts", "methods", "backbones", "seeds", "protocol", "epochs")
    settings |= {name: value for name in options if (value := getattr(arguments, name)) is not None}
    return Plan(**{"datasets": datasets_at_hand(arguments.data), **settings})
