"""The tables of methods, models and objectives, made of their first docstring lines where a page asks for one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from gnnsafe.methods import METHODS
from gnnsafe.models import MODELS
from gnnsafe.training import OBJECTIVES

TABLES: Mapping[str, Mapping[str, type]] = {"methods": METHODS, "models": MODELS, "objectives": OBJECTIVES}
MARK = re.compile(r"^<!-- table of (methods|models|objectives) -->$", re.M)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put each table where the page has `<!-- table of methods -->`."""
    return MARK.sub(lambda match: table(match[1]), markdown)


def table(noun: str) -> str:
    """A row for each class: its name, the class, and the first line of its docstring."""
    rows = [_row(noun, name, listed) for name, listed in TABLES[noun].items()]
    kind = "| kind " if noun == "methods" else ""
    head = f"| name | class in `gnnsafe.{'training' if noun == 'objectives' else noun}` {kind}| what it is |"
    return "\n".join([head, re.sub(r"[^|]+", "---", head), *rows])


def _row(noun: str, name: str, listed: type) -> str:
    first = (listed.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
    kind = f"| {listed.kind} " if noun == "methods" else ""
    return f"| `{name}` | `{listed.__name__}` {kind}| {first} |"
