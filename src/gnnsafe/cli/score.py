"""`gnnsafe score`: every node of a graph in files scored and decided about, in a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, progress_bar, share, terminal
from gnnsafe.decisions import Decisions, decisions
from gnnsafe.detector import Detector, load
from gnnsafe.files import writable
from gnnsafe.graph import Data
from gnnsafe.report.decisions import check_ending, histogram, write_table

__all__ = ["configure"]

FILE = "scores.parquet"
FALSE_ALARM = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `score`."""
    parser.description = (
        "Scores every node of a graph by a detector that 'gnnsafe train' (or Detector.save) has written. "
        "The table has a row per node: its id, the predicted class and its probability, the score (higher = more "
        "out-of-distribution), the p-value among held-out ID nodes, and a flag: true = out-of-distribution. Prints a "
        "summary."
    )
    parser.epilog = (
        "Example: gnnsafe score detector/ new_graph/ --out scores.csv --fdr 0.1. Error rates hold on average "
        "for ID nodes that are like the calibration nodes; one whose neighbours have shifted is flagged more often."
    )
    parser.add_argument("detector", metavar="DETECTOR", help="the folder of a detector")
    parser.add_argument("graph", metavar="GRAPH", help=GRAPH)
    parser.add_argument(
        "--out", metavar="FILE", type=Path, required=True, help="the table to write, .parquet or .csv by its ending"
    )
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--false-alarm", metavar="SHARE", type=share, help=f"of ID nodes at most this share is flagged (default: "
        f"{FALSE_ALARM})",
    )  # fmt: skip
    level.add_argument("--fdr", metavar="SHARE", type=share, help="of the flagged nodes at most this share is ID")
    add_graph_options(parser)
    parser.set_defaults(command=_score)


def _score(arguments: argparse.Namespace) -> None:
    out = writable("--out", arguments.out, file=FILE)
    check_ending("--out", out)
    level = {"fdr": arguments.fdr} if arguments.fdr else {"false_alarm": arguments.false_alarm or FALSE_ALARM}
    detector = load(arguments.detector)
    detector.calibrated()
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=3)
        data = given_graph(arguments, undirected=detector.notes.get("undirected", False))
        progress.update(task, description="Scoring", completed=1)
        decided = decisions(detector, data, **level)
        progress.update(task, description="Writing", completed=2)
        write_table(out, _columns(detector, data, decided))
    console = terminal()
    console.print(*_lines(decided, **level), sep="\n", soft_wrap=True)
    console.print(histogram(decided.scores.numpy(), decided.flags.numpy()))
    console.print(f"Table: {out.absolute()}", soft_wrap=True)


def _columns(detector: Detector, data: Data, decided: Decisions) -> dict[str, Any]:
    columns: dict[str, Any] = {"id": data.node_id}
    if decided.predicted is not None and decided.probabilities is not None:
        names = np.array(detector.class_names_ or range(int(decided.predicted.max()) + 1))
        columns |= {"predicted": names[decided.predicted.numpy()], "probability": decided.probabilities.numpy()}
    rest = {"score": decided.scores, "p_value": decided.p_values, "flag": decided.flags}
    return columns | {name: values.numpy() for name, values in rest.items()}


def _lines(decided: Decisions, *, false_alarm: float | None = None, fdr: float | None = None) -> list[str]:
    nodes, flagged = len(decided.flags), int(decided.flags.sum())
    lead = f"{nodes:,} nodes, {flagged:,} flagged ({flagged / nodes:.1%})"
    if false_alarm is not None:
        return [
            lead,
            f"expected false alarms: at most {false_alarm:g} of the ID nodes, {false_alarm * nodes:,.0f} if all are ID",
        ]
    assert fdr is not None
    return [lead, f"expected false alarms: at most {fdr:g} of those flagged, {fdr * flagged:,.0f}"]
