"""The code on the pages and in the notebooks runs as printed."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from pathlib import Path

import pytest

from gnnsafe import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SCRIPTS = "quickstart.md"  # its blocks are scripts of their own: what one saves, the next loads
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```\n", re.M | re.S)


def words(text: str) -> list[str]:
    """Each line up to its first figure: the last digits may differ from machine to machine."""
    return [re.split(r"s? [-+]?\d|=?[-+]?\d+\.\d|:", line)[0] for line in text.splitlines()]


def execute(code: str, names: dict[str, object]) -> None:
    """Run it as if it were a file of its own."""
    exec(compile(code, "page.py", "exec", dont_inherit=True), names)


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands(page: Path) -> list[str]:
    """The commands of gnnsafe on a page, without comments: those in blocks of a shell and, in the README, indented."""
    blocks = SHELL.findall(text(page)) + re.findall(r"(?:^    .*\n)+", text(page), re.M)
    lines = [re.sub(r"\s+#.*", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("gnnsafe ")]


@pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # much is flagged where all has changed
def test_the_newcomers_path_runs_as_printed(tmp_path, monkeypatch, capsys):
    """Each block is a script by itself: what one saves, the next loads."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(text(ROOT / "docs" / SCRIPTS))
    assert len(blocks) == 3
    for code, output in blocks:
        execute(code, {"__name__": "__main__"})
        assert words(capsys.readouterr().out) == words(output)
    assert "<svg" in (tmp_path / "why.svg").read_text(encoding="utf-8")


@pytest.mark.usefixtures("registries")
@pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # much is flagged where all has changed
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != SCRIPTS and BLOCK.search(text(page))], ids=lambda page: page.stem
)
def test_a_pages_code_runs_from_top_to_bottom_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    """One page, one namespace; commands of the shell run in between where the page has the files that they read."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in re.finditer(f"{BLOCK.pattern}|{SHELL.pattern}", text(page), re.M | re.S):
        code, output, _ = block.groups()
        if code is not None:
            execute(code, names)
            printed = capsys.readouterr().out
            assert words(printed) == words(output or "")
        elif page.name == "files.md":
            for line in commands(page):
                assert cli.main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
            capsys.readouterr()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_commands_on_a_page_are_commands(page):
    """What is not run here, since it takes hours, names at least options that exist."""
    for line in commands(page):
        name, *arguments = shlex.split(line)[1:]
        cli.command_parser(name).parse_args(arguments)


def test_the_readmes_examples_run_and_print_what_they_say(capsys):
    (example, output), (own, _) = BLOCK.findall(text(ROOT / "README.md"))
    names: dict[str, object] = {}
    execute(example, names)
    assert capsys.readouterr().out == output
    exec("data, new_data = cora.id, cora.ood['feature']", names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # much is flagged, as all has changed
        execute(own, names)
    assert capsys.readouterr().out.startswith("Node 17 scores ")


def test_the_readme_is_one_screen_and_its_links_lead_somewhere():
    readme = text(ROOT / "README.md")
    assert len(readme.encode()) <= 7_000
    for link in re.findall(r"\]\(([^)#]+)|srcset=\"([^\"]+)|src=\"([^\"]+)", readme):
        path = "".join(link)
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_pages_name_no_folder_that_only_we_have(page):
    assert "shared/" not in text(page)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES, *NOTEBOOKS], ids=lambda page: page.stem)
def test_pages_install_gnnsafe_from_the_repository(page):
    """No package index has it: a stranger's package of that name would be installed."""
    assert not re.search(r"pip install (-\S+ )*'?gnnsafe", text(page))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_output_and_pictures(path, tmp_path, request, monkeypatch, capsys):
    if path.stem == "temporal_shift":
        root = request.getfixturevalue("data_root")
        if not (root / "ArxivTopics" / "raw").is_dir():
            pytest.skip("no Arxiv available")
        monkeypatch.setenv("GNNSAFE_DATA", str(root))
    notebook = json.loads(text(path))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that a reader is meant to see are in the stored output
        execute("\n".join("".join(cell["source"]) for cell in cells), {"__name__": "notebook"})
    printed = capsys.readouterr().out
    outputs = [output for cell in cells for output in cell["outputs"]]
    stored = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")
    assert words(printed) == words(stored)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output["output_type"] in ("stream", "execute_result") for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_the_quickstart_notebook_ends_as_it_should_and_has_both_pictures():
    notebook = json.loads(text(ROOT / "examples" / "quickstart.ipynb"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert "".join(outputs[-1]["text"]).endswith("the same scores to the last bit: True\n")
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 2
