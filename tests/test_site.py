"""The documentation builds without a warning, leads nowhere that is not there, and needs no network to be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import gnnsafe
from gnnsafe.cli import COMMANDS
from gnnsafe.methods import METHODS

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """What a page shows, the anchors that it has, where it leads, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        elif tag == "link" and given.get("href"):
            self.loaded.append(str(given["href"]))
        elif given.get("src"):
            self.loaded.append(str(given["src"]))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it, where every warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    quiet = ["-W", "ignore::DeprecationWarning"]  # PyG's own while it is imported
    command = [sys.executable, *quiet, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_page_is_there(site, pages):
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    brought = {Path(f"{name}.html") for name in ("changelog", "results", "architecture", "contributing", "security")}
    notebooks = {Path("examples", f"{path.stem}.html") for path in (ROOT / "examples").glob("*.ipynb")}
    assert written | brought | notebooks <= {path.relative_to(site) for path in pages}


def test_every_link_leads_to_a_page_and_a_place_on_it(pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors | {"__skip"}, f"{path.name}: {link}"


def test_nothing_is_loaded_from_a_network(site, pages):
    for path, page in pages.items():
        for source in page.loaded:
            parts = urlsplit(source)
            assert parts.scheme in ("", "data"), f"{path.name}: {source}"
            if not parts.scheme and not source.startswith("#"):
                assert (path.parent / unquote(parts.path)).resolve().is_file(), f"{path.name}: {source}"
    assert (site / "search" / "search_index.js").is_file()  # search works on files, too
    assert "import url(http" not in "".join(path.read_text("utf-8") for path in site.rglob("*.css"))


def test_the_table_of_methods_has_every_methods_first_line(site, pages):
    text = pages[site / "methods.html"].text
    for name, method in METHODS.items():
        assert f"{name} {method.__name__} {method.kind} {method.__doc__.splitlines()[0]}" in text


def test_the_reference_has_every_public_name(pages):
    anchors = set().union(*(page.anchors for page in pages.values()))
    for name in gnnsafe.__all__:
        public = getattr(gnnsafe, name)
        if hasattr(public, "__module__"):
            assert {anchor for anchor in anchors if re.fullmatch(rf"gnnsafe\..+\.{name}", anchor)}, name
    for module in ("methods", "models"):
        for name, public in vars(import_module(f"gnnsafe.{module}")).items():
            if not isinstance(public, type) or name == "Registry":
                continue
            assert f"gnnsafe.{module}.{name}" in anchors, name


def test_the_command_lines_reference_has_every_command_and_option(site, pages, capsys):
    text = unescape(pages[site / "commands.html"].text)
    for name in COMMANDS:
        assert f"gnnsafe {name}" in text
        with pytest.raises(SystemExit):
            import_module("gnnsafe.cli").main([name, "--help"])
        for option in re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out):
            assert option in text, f"gnnsafe {name} {option}"


def test_every_page_says_the_version(site, pages):
    alone = site / "leaderboard" / "leaderboard.html"  # each of its records says its own
    assert alone in pages
    assert all(f"gnnsafe {gnnsafe.__version__}" in page.text for path, page in pages.items() if path != alone)
