"""One scored graph as a page in a file: the same look as the service's, nothing to serve."""

from __future__ import annotations

from pathlib import Path

from gnnsafe.detector import Decisions, Detector
from gnnsafe.files import replacing
from gnnsafe.service.glance import uploaded
from gnnsafe.service.page import STATIC, environment

__all__ = ["write_page"]


def write_page(path: Path, decisions: Decisions, detector: Detector, *, title: str, false_alarm: float) -> None:
    """Write what was decided about a graph: how many are flagged beside what is expected, p-values, unusual nodes.

    Args:
        path: The file, written whole or not at all.
        decisions: About all nodes, at the level `false_alarm`.
        detector: The one that decided.
        title: What the graph is called.
        false_alarm: Of ID nodes at most this share is flagged.
    """
    found = uploaded(decisions, detector, repr(detector), false_alarm)
    css = (STATIC / "page.css").read_text(encoding="utf-8")
    text = environment().get_template("file.html").render(found=found, title=title, css=css)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
