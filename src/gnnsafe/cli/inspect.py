"""`gnnsafe inspect`: what is in the folder of a detector."""

from __future__ import annotations

import argparse

from gnnsafe.cli.options import path
from gnnsafe.cli.output import Answer
from gnnsafe.cli.parsing import examples
from gnnsafe.report.saved import saved_figures, saved_lines
from gnnsafe.saving import FORMAT, read

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `inspect`."""
    parser.description = (
        "Reads a detector that 'gnnsafe train' or Detector.save has written, checks that its files are "
        "whole, and says what it is: model, method, features, classes, calibration, and how it came about. Runs "
        "nothing, and needs no model."
    )
    parser.epilog = examples("gnnsafe inspect detector/")
    parser.add_argument("detector", metavar="DETECTOR", type=path, help="the folder of a detector")
    parser.set_defaults(command=_inspect)


def _inspect(arguments: argparse.Namespace) -> Answer:
    saved, _ = read(arguments.detector)
    figures = saved_figures({**vars(saved), "format": FORMAT})
    return Answer(saved_lines(figures), figures)
