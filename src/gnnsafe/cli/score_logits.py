"""`gnnsafe score-logits`: logits that any model gave, scored and decided about by an engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnsafe.cli.engines import add_engine_options, asked_of, engine_answer, opened
from gnnsafe.cli.options import path, place, share
from gnnsafe.cli.output import Answer
from gnnsafe.cli.parsing import examples
from gnnsafe.errors import require
from gnnsafe.saving import read

__all__ = ["configure"]

FALSE_ALARM = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `score-logits`."""
    parser.description = (
        "Scores every node by logits that a model of yours gave, wherever it ran, with the method and the calibration "
        "of a detector saved for that model. LOGITS is a table with 'id' and columns of numbers, or one column "
        "'logits' of lists; EDGES one with 'source' and 'target'. Both are Parquet: files, folders of parts, globs."
    )
    parser.epilog = examples(
        "gnnsafe score-logits logits/ edges/ --detector detector/ --out scores/",
        "gnnsafe score-logits logits/ edges/ --detector detector/ --engine duckdb --memory 4GB --out scores/",
    )
    parser.add_argument("logits", metavar="LOGITS", type=place, help="the table of logits")
    parser.add_argument("edges", metavar="EDGES", type=place, help="the table of edges")
    parser.add_argument("--detector", metavar="FOLDER", type=place, required=True, help="the folder of a detector")
    parser.add_argument("--out", metavar="FOLDER", type=place, required=True, help="the folder of parts to write")
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--false-alarm", metavar="SHARE", type=share, help=f"of ID nodes at most this share is flagged (default: "
        f"{FALSE_ALARM})",
    )  # fmt: skip
    level.add_argument("--fdr", metavar="SHARE", type=share, help="of the flagged nodes at most this share is ID")
    parser.add_argument("--storey", action="store_true", help="with --fdr: estimate how many nodes are ID")
    parser.add_argument("--nodes", metavar="FILE", type=path, help="decide about these nodes alone: an id per line")
    parser.add_argument("--undirected", action="store_true", help="add the reverse of every edge")
    parser.add_argument("--drop-unknown-edges", action="store_true", help="leave out edges of unknown nodes")
    add_engine_options(parser, ("duckdb", "spark"))
    parser.set_defaults(command=_score)


def _score(arguments: argparse.Namespace) -> Answer:
    require(not arguments.storey or arguments.fdr, "--storey", "be given with --fdr", "no --fdr")
    from gnnsafe.engines import score_logits
    from gnnsafe.engines.scoring import planned_logits

    saved, _ = read(Path(arguments.detector))
    planned_logits(saved)  # before Spark starts
    asked = asked_of(arguments, default=FALSE_ALARM)
    with opened(arguments, arguments.logits, arguments.edges) as engine:
        said = score_logits(
            engine,
            saved,
            arguments.logits,
            arguments.edges,
            out=arguments.out,
            asked=asked,
            undirected=arguments.undirected,
            drop_unknown_edges=arguments.drop_unknown_edges,
        )
    return engine_answer(said, asked)
