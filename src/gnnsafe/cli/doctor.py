"""`gnnsafe doctor`: what is installed here, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
from itertools import groupby

from gnnsafe.cli.output import Answer
from gnnsafe.cli.parsing import examples
from gnnsafe.installation import findings

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `doctor`."""
    parser.description = (
        "Looks at versions, threads and devices, at each extra and what it needs beside Python (Java for spark, "
        "Chromium for the tests of pages), and at available data sets; says what to do about each lack. 'missing' is "
        "what only some commands need, 'wrong' what keeps something from working."
    )
    parser.epilog = examples("gnnsafe doctor", "gnnsafe doctor --json")
    parser.epilog += "Exit code: 0, or 1 where something is wrong."
    parser.add_argument("--data", metavar="FOLDER", help="the data root (default: $GNNSAFE_DATA)")
    parser.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> Answer:
    found = findings(arguments.data)
    wrong, width = sum(one.state == "wrong" for one in found), max(len(one.about) for one in found)
    words: list[str] = []
    for part, group in groupby(found, key=lambda one: one.part):
        words.append(part)
        for one in group:
            words.append(f"  {one.state:<7}  {one.about:<{width}}  {one.text}")
            words += [f"  {'':<7}  {'':<{width}}  → {one.remedy}"] if one.remedy else []
    verdict = f"{wrong} wrong: see → above" if wrong else "nothing is wrong"
    return Answer(
        [*words, verdict], {"wrong": wrong, "findings": [one._asdict() for one in found]}, code=1 if wrong else 0
    )
