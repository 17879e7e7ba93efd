"""`gnnsafe leaderboard`: the page of all figures, and the check of records that are to join it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gnnsafe import __version__
from gnnsafe.bench import store
from gnnsafe.bench.code import code_version
from gnnsafe.bench.joining import findings
from gnnsafe.cli.options import names, path, place
from gnnsafe.cli.output import Answer
from gnnsafe.cli.parsing import examples
from gnnsafe.cli.report import FOLDER, audit_of, selected
from gnnsafe.errors import InputError
from gnnsafe.files import replacing
from gnnsafe.report.leaderboard import as_leaderboard_page, leaderboard

__all__ = ["configure"]

CHECK = "check"


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `leaderboard`."""
    parser.description = (
        "Writes leaderboard.html, one page that works offline (sorted by a click, filtered by regime, data set, "
        "exposure and selection; each number opens its record), and leaderboard.json, from the records of 'gnnsafe "
        "bench'. With 'check' before the folder it says whether these records may join: none damaged or failed, this "
        "version, 200 epochs, the data's fingerprints, complete seeds, chosen without test data; then one drawn cell "
        "is run again."
    )
    parser.epilog = examples("gnnsafe leaderboard results/", "gnnsafe leaderboard check results/ --methods mine.py")
    parser.epilog += "Exit code of check: 0 where the records may join, 1 where not."
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="*",
        type=path,
        help=f"'check', or nothing, and a folder with records (default: {FOLDER})",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=path,
        help="where to write them (default: 'leaderboard' beside the records)",
    )
    parser.add_argument("--data", metavar="FOLDER", type=place, help="check: the data root (default: $GNNSAFE_DATA)")
    parser.add_argument(
        "--methods", metavar="FILES", type=names, default=(), help="check: files of the methods that are your own"
    )
    parser.set_defaults(command=_leaderboard)


def _leaderboard(arguments: argparse.Namespace) -> Answer:
    first, *others = arguments.folders or [FOLDER]
    if str(first) == CHECK and (others or not first.is_dir()):
        return _check(others or [FOLDER], arguments)
    if others:
        raise InputError(f"'FOLDER' must be one (got {len(others) + 1})")
    for option in ("data", "methods"):
        if getattr(arguments, option):
            raise InputError(f"'--{option}' must be given after 'check' alone (got it for a page, which runs nothing)")
    records, code = selected(first)
    if not records:
        raise InputError(f"'{first}' must hold records of 'gnnsafe bench' (got none)")
    if audited := audit_of(first):  # whose figures are the audit's, as in the report: none counts twice
        records = [record for record in records if record.selection == "validation"]
        records += [record for record in audited if record.selection == "test"]
    board, out = leaderboard(records), store.opened(arguments.out or first / "leaderboard")
    texts = {"leaderboard.json": json.dumps(board, ensure_ascii=False) + "\n"}
    texts["leaderboard.html"] = as_leaderboard_page(board)
    for name, text in texts.items():
        with replacing(out / name) as part:
            part.write_text(text, encoding="utf-8", errors="backslashreplace")
    files = [("Page", out / "leaderboard.html"), ("JSON", out / "leaderboard.json")]
    return Answer([], {"entries": len(board["entries"])}, files, code)


def _check(folders: list[Path], arguments: argparse.Namespace) -> Answer:
    if len(folders) > 1 or arguments.out is not None:
        raise InputError("'check' must be followed by one folder, without --out (got more)")
    found = findings(folders[0], root=arguments.data, version=code_version(__version__), files=arguments.methods)
    width = max(len(finding.rule) for finding in found)
    lines = [f"{'ok  ' if finding.holds else 'no  '} {finding.rule:<{width}}  {finding.text}" for finding in found]
    holds = all(finding.holds for finding in found)
    verdict = "These records may join." if holds else "These records may not join yet."
    figures = {"holds": holds, "findings": [finding._asdict() for finding in found]}
    return Answer([*lines, verdict], figures, code=0 if holds else 1)
