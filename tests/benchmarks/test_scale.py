"""What a page says of measured rows is what these say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.scale import RECORDS, on_paper

DOCS = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_calculation_on_paper_goes_by_the_measured_rows():
    worked_out, page = on_paper(json.loads(RECORDS.read_text())), DOCS.read_text(encoding="utf-8")
    assert worked_out
    assert " ".join(worked_out.split()) in " ".join(page.split())
