"""`gnnsafe bench`: runs a plan, or one of the paper's figures, and keeps the records."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from gnnsafe import __version__
from gnnsafe.bench import paper, search, store
from gnnsafe.bench.code import code_version
from gnnsafe.bench.cores import each
from gnnsafe.bench.figures import FIGURES, figure_cells
from gnnsafe.bench.plan import Cell, Plan, available_datasets, read_plan
from gnnsafe.bench.recipes import Protocol, Recipe, SelectedBy
from gnnsafe.bench.study import CellTask, carry_out, chains, given_up, memory_needed, tasks
from gnnsafe.cli.options import add_device_option, names, path, place, positive
from gnnsafe.cli.output import Answer, log, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.cli.report import FOLDER, printed, selected
from gnnsafe.devices import chosen_device
from gnnsafe.errors import InputError
from gnnsafe.report.audit import audit_section
from gnnsafe.report.plotting import altair
from gnnsafe.report.results import order_figures, order_sections, write_figure

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `bench`."""
    parser.description = (
        "Runs data sets × shifts × backbones × seeds over all cores: in each of these cells every "
        "objective is trained once and scored by every method that reads it, alone and propagated (K=2). Records go "
        "to a folder cell by cell; interrupted or killed, the same command goes on where it was. Prints the order of "
        "methods by mean AUROC, a table per protocol. NAMES are separated by commas."
    )
    parser.epilog = examples(
        "gnnsafe bench --datasets cora,twitch --methods gnnsafe,energy-ft --seeds 3",
        "gnnsafe bench --plan plan.toml --jobs 4 --out results/",
        "gnnsafe bench --figure 2",
    ) + (
        "Exit code: 0, or 1 where a run failed; the same command tries it again. "
        "Protocol 'paper' is as the published runs: their margins, and scores of isolated nodes decay. "
        "'rigorous' has one pair of margins for all shifts and keeps those scores; under structure and feature shift "
        "only ID test nodes are told from what became of them, and 'rewire' is a second structure shift; a seed draws "
        "the split too, and under label shift the classifier has the ID classes only. Without --search, learning rate "
        "and margins are those of the published runs, or common to all shifts and chosen by no figure. With it, in the "
        f"cells of seed 0 and for all seeds: the learning rate ({', '.join(map(str, paper.LEARNING_RATES))}) with the "
        "lowest ID validation loss for each objective, then margins t_in (-9, -7, -5), t_out (-1, -2, -3, -4) and "
        "weight λ (0.01, 0.1, 1) of Energy FT and GNNSafe++ with the highest AUROC of ID validation nodes against half "
        "of the exposure nodes, held out from the trials' training; never by test data. 'paper' has a choice for each "
        "shift, 'rigorous' one for all of a data set's shifts in the plan. Records say how each value was chosen; "
        "trials are kept in the folder's 'search' and are not run twice. '--selection test' searches the same values "
        "and the epoch for the highest AUROC on test data: what that gains is the audit's table in 'gnnsafe report'."
    )
    parser.add_argument("--datasets", metavar="NAMES", type=names, help="(default: the paper's that are available)")
    parser.add_argument(
        "--shifts", metavar="NAMES", type=names, help="(default: the paper's, and, unless the protocol is 'paper', "
        "rewire, planted-feature, planted-structure)",
    )  # fmt: skip
    parser.add_argument(
        "--methods", metavar="NAMES", type=names, help="as the table names them (default: all, or the paper's ten "
        "and 'GNNSafe, keep' where the protocol 'paper' is named); a name that ends in "
        ".py is a file of your own, whose classes derived from gnnsafe.methods.Method are run, alone and propagated",
    )  # fmt: skip
    parser.add_argument("--backbones", metavar="NAMES", type=names, help="(default: gcn)")
    parser.add_argument("--seeds", metavar="N", type=positive, help="how many: 0, 1, … (default: 5)")
    parser.add_argument(
        "--protocol", choices=get_args(Protocol), help="see below (default: paper for what the paper's tables have, "
        "rigorous for all else)",
    )  # fmt: skip
    parser.add_argument("--epochs", metavar="N", type=positive, help="epochs of training (default: 200)")
    parser.add_argument(
        "--search", action="store_true", default=None, help="choose learning rate and margins first by the paper's "
        "grids: 3 trainings for each objective, 36 more for Energy FT and for GNNSafe++ (see below)",
    )  # fmt: skip
    parser.add_argument(
        "--selection", choices=get_args(SelectedBy), help="what chooses epoch and settings: ID validation and held-out "
        "exposure nodes, or, for the audit, test data; the latter's records are named so and never ranked "
        "(default: validation)",
    )  # fmt: skip
    parser.add_argument(
        "--plan", metavar="FILE", type=path, help='a TOML file with any of the above: datasets = ["cora"], seeds = 3, '
        "…; options override it",
    )  # fmt: skip
    parser.add_argument(
        "--figure", type=int, choices=FIGURES, help="run and draw one of the paper's figures instead: "
        + "; ".join(f"{number} {text}" for number, text in FIGURES.items()) + " (with --seeds, --epochs alone)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=positive,
        help="processes at once (default: one per core, fewer where memory is short)",
    )
    add_device_option(parser, "cpu")
    parser.add_argument("--data", metavar="FOLDER", type=place, help="the data root (default: $GNNSAFE_DATA)")
    parser.add_argument(
        "--out", metavar="FOLDER", type=path, default=FOLDER, help=f"where to keep records (default: {FOLDER})"
    )
    parser.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> Answer:
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:
        kept = f"what is finished is kept in {arguments.out}"
        raise KeyboardInterrupt(f"{str(stop) or kept}; the same command goes on from there") from stop


def _run(arguments: argparse.Namespace) -> Answer:
    folder: Path = arguments.out
    steps: tuple[search.SearchStep, ...] = ()
    if arguments.figure is not None:
        folder, cells = folder / f"figure-{arguments.figure}", _figure_cells(arguments)
    else:
        plan = _plan(arguments)
        for dataset in plan.without_shifts():
            log.warning("%s is left out, it has none of the shifts %s", dataset, ", ".join(plan.shifts))
        cells, steps = plan.cells(), search.steps_of(plan)
    settings = {"version": code_version(__version__), "device": str(chosen_device(arguments.device))}
    work = tasks(cells, root=arguments.data, folder=store.opened(folder), **settings)
    for step in steps:
        trials, kept = search.trials(work, step), store.opened(folder / search.FOLDER)
        if trials:
            _carry_out(trials, kept, arguments.jobs, "trial", f" of {step.name}")
        work = search.settled(work, step, store.read(kept)[0])
        if failed := len(_left(trials, kept)):
            log.warning("%d trials failed, and their values are not chosen", failed)
    _carry_out(work, folder, arguments.jobs, "cell")
    records, code = selected(folder, {run.key for task in work for run in task.runs()})
    figures = {"records": folder.absolute(), "order": order_figures(records)}
    if not records:
        return Answer([], figures, code=code)
    if arguments.figure is not None:
        return Answer([], figures, [("Figure", path) for path in write_figure(arguments.figure, records, folder)], code)
    audited = any(task.cell.selection == "test" for task in work)
    audit = audit_section(records) if audited else None
    sections = order_sections(records) if audit is None else [audit]
    words = [f"Tables and charts: gnnsafe report {folder}"]
    if audited and audit is None:
        words = [
            f"What test data chose is shown beside honest runs: run the same with '--search' instead into {folder}"
        ]
    return Answer([*printed(sections), *words], figures, code=code)


def _figure_cells(arguments: argparse.Namespace) -> list[tuple[Cell, list[Recipe]]]:
    altair()
    for option in ("datasets", "shifts", "methods", "backbones", "protocol", "plan", "search", "selection"):
        if getattr(arguments, option) is not None:
            raise InputError(f"'--{option}' must not be given with '--figure' (got both); a figure says what it runs")
    seeds = arguments.seeds or (1 if arguments.figure == 1 else 5)
    return figure_cells(arguments.figure, seeds, arguments.epochs or 200, arguments.data)


def _carry_out(work: Sequence[CellTask], folder: Path, jobs: int | None, noun: str, purpose: str = "") -> None:
    """Carry out what is not kept in the folder yet."""
    left = _left(work, folder)
    kept, names = len(work) - len(left), f"{noun}s{purpose}"
    count = f"1 {noun}{purpose}" if len(work) == 1 else f"{len(work)} {names}"
    log.info("%s, %d of them finished before; records are kept in %s", count, kept, folder)
    try:
        with progress_bar() as progress:
            bar = progress.add_task(names.capitalize(), total=len(work), completed=kept)
            needed = memory_needed(left)
            for done in each(carry_out, chains(left), jobs=jobs, lost=given_up, memory=needed):
                progress.advance(bar, done)
    except KeyboardInterrupt as stop:
        kept = len(work) - len(_left(work, folder))
        raise KeyboardInterrupt(f"{kept} of {len(work)} {names} are kept in {folder}") from stop


def _left(work: Sequence[CellTask], folder: Path) -> list[CellTask]:
    finished = {record.key for record in store.read(folder)[0] if not record.error}
    return [task for task in (task.without(finished) for task in work) if task.recipes]


def _plan(arguments: argparse.Namespace) -> Plan:
    settings = {} if arguments.plan is None else read_plan(arguments.plan)
    options = ("datasets", "shifts", "methods", "backbones", "seeds", "protocol", "epochs", "search", "selection")
    settings |= {name: value for name in options if (value := getattr(arguments, name)) is not None}
    return Plan(**{"datasets": available_datasets(arguments.data), **settings})
