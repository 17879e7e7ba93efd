"""Pages of the site that live elsewhere in the repository, links to them, and pages that may not exist yet.

A page links to a file as it lies in the repository (`../CHANGELOG.md`, `../benchmarks/results.md`), so that the link
works where the repository is read, too. The site has its own place for such a file: this hook puts it there and turns
the link.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))
from notebooks import as_markdown  # noqa: E402 - a hook is no package

PAGES = {
    "CHANGELOG.md": "changelog.md",
    "RESULTS.md": "results.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Where the site has a file of the repository; those of `benchmarks/`, `figures/` and `examples/` keep their names."""

LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Say the version on every page."""
    config.copyright = f"gnnsafe {_version()} · MIT licence"
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files that live elsewhere."""
    for source, place in repository_pages().items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            files.append(File.generated(config, place, content=as_markdown(path)))
        else:
            linked = InclusionLevel.NOT_IN_NAV if place.startswith("benchmarks/") else InclusionLevel.UNDEFINED
            files.append(File.generated(config, place, abs_src_path=str(path), inclusion=linked))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to their pages here."""
    places = repository_pages()
    here = {place: source for source, place in places.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        source = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        place = places.get(source, source.removeprefix("docs/") if source.startswith("docs/") else None)
        if place is None:
            return match.group()  # what is nowhere on the site is a broken link, which mkdocs tells
        relative = posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
        return f"{before}{relative}{anchor or ''}{after}"

    return LINK.sub(turned, markdown)


def repository_pages() -> dict[str, str]:
    """Each file of the repository that the site has, and where."""
    kept = [*ROOT.glob("benchmarks/*.md"), *ROOT.glob("benchmarks/*.svg"), *ROOT.glob("figures/*.svg")]
    places = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).as_posix() for path in kept}
    notebooks = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in ROOT.glob("examples/*.ipynb")}
    return {**PAGES, **places, **notebooks}


def _version() -> str:
    text = (ROOT / "src" / "gnnsafe" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.M)[1]
