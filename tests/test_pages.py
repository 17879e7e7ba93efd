"""The README's and the notebook's code runs as printed, each page in processes of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECTION = "## From a graph in files to decisions\n"


def run(code: str, folder: Path) -> str:
    """What the code prints, run by a process of its own in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]  # PyG's own while it is imported
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def words(text: str) -> list[str]:
    """Each line up to its first figure: the last digits may differ from machine to machine."""
    return [re.split(r"s? [-+]?\d|:", line)[0] for line in text.splitlines()]


def test_the_newcomers_path_runs_as_printed(tmp_path):
    """Each block is a process: what one saves, the next loads."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    blocks = section.split("```")[1::2]
    codes, outputs = ([block.split("\n", 1)[1] for block in blocks[start::2]] for start in (0, 1))
    assert [block.split("\n", 1)[0] for block in blocks] == ["python", "text"] * 2
    for code, output in zip(codes, outputs, strict=True):
        assert words(run(code, tmp_path)) == words(output)
    assert "<svg" in (tmp_path / "why.svg").read_text(encoding="utf-8")


def test_the_notebook_runs_and_has_its_pictures(tmp_path):
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    printed = run("\n".join("".join(cell["source"]) for cell in cells), tmp_path)
    assert printed.endswith("the same scores to the last bit: True\n")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output["output_type"] in ("stream", "execute_result") for output in outputs)
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
