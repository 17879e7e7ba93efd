"""`gnnsafe demo`: OOD detection on real Cora, beside the paper's figures."""

from __future__ import annotations

import argparse
from functools import partial

from gnnsafe.bench.cores import each
from gnnsafe.bench.paper import PAPER_SHIFTS
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.run import Result
from gnnsafe.bench.study import demo_cell
from gnnsafe.bench.summary import summaries
from gnnsafe.cli.options import output, path, place, positive
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.files import replacing
from gnnsafe.report.demo import demo_document, demo_figures, demo_grid
from gnnsafe.report.document import as_html
from gnnsafe.report.grid import terminal_grid
from gnnsafe.report.plotting import altair

__all__ = ["configure"]

DEMO_FILE = "gnnsafe-demo.html"
DEMO_NOTES = (
    "Percent; AUROC, AUPR: higher is better, FPR95: lower; AUPR and FPR95 with ID nodes as positives, as in the paper.",
    "'paper' is its published AUROC: one seed, the public split (pass --data a folder with Planetoid/Cora/raw for it).",
    "Paper protocol: the score of a node without in-neighbours decays; 'keep' leaves it alone, gnnsafe's default.",
    "TwoScale, a Detector's default, learns from validation nodes what is usual, and lifts all scores of a graph that "
    "is odd as a whole: that another graph is another counts in its figures.",
)

QUICK_NOTE = "A quick look: 50 epochs are too few for the paper's figures."


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `demo`."""
    parser.description = (
        "Trains the paper's GCN on real Cora; MSP, Energy, GNNSafe and GNNSafe++, and TwoScale, which is ours, then "
        "tell its test nodes from those of a graph with redrawn edges (structure), blended features (feature) or "
        "left-out classes (label). Prints a table and writes a page with the distributions of scores. Takes about half "
        "a minute."
    )
    parser.epilog = examples("gnnsafe demo", "gnnsafe demo --quick --out page.html")
    parser.add_argument(
        "--data", metavar="FOLDER", type=place, help="folder with PyG's Planetoid/Cora/raw (default: $GNNSAFE_DATA, "
        "then the Cora carried by the package graphdatascience, then PyG's download)",
    )  # fmt: skip
    parser.add_argument("--seeds", metavar="N", type=positive, help="how many to average over (default: 3; quick: 1)")
    parser.add_argument(
        "--out", metavar="FILE", type=path, default=DEMO_FILE, help=f"where to write the page (default: {DEMO_FILE})"
    )
    parser.add_argument("--quick", action="store_true", help="one seed and 50 epochs, for a first look in seconds")
    parser.set_defaults(command=_demo)


def _demo(arguments: argparse.Namespace) -> Answer:
    altair()
    out = output(arguments, DEMO_FILE)
    seeds = arguments.seeds or (1 if arguments.quick else 3)
    epochs = 50 if arguments.quick else 200
    cells = [Cell("cora", shift, seed, epochs=epochs) for shift in PAPER_SHIFTS for seed in range(seeds)]
    results: list[Result] = []
    with progress_bar() as progress:
        task = progress.add_task("Training on Cora under three shifts", total=len(cells))
        for source, cell_results in each(partial(demo_cell, root=arguments.data), cells):  # noqa: B007 - the same for all cells
            results += cell_results
            progress.advance(task)
    notes = (*DEMO_NOTES, *([QUICK_NOTE] if arguments.quick else []))
    seeds_text = "1 seed" if seeds == 1 else f"mean ± std of {seeds} seeds"
    lead = f"Cora from {source}. GCN, {epochs} epochs, {seeds_text}."
    with replacing(out) as part:
        part.write_text(as_html(demo_document(results, lead=lead, notes=notes)), encoding="utf-8")
    rows = summaries(results)
    figures = {"source": source, "epochs": epochs, "seeds": seeds, "results": demo_figures(rows)}
    return Answer([lead, terminal_grid(demo_grid(rows)), *notes], figures, [("Report", out)])
