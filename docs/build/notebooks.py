"""A notebook as a page: its texts, its code and what the code printed and drew, as they are stored in it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import CoalesceStreamsPreprocessor

__all__ = ["as_markdown"]


def as_markdown(path: Path) -> str:
    """The notebook as Markdown, with its pictures inside."""
    exporter = MarkdownExporter(preprocessors=[CoalesceStreamsPreprocessor])  # lines printed one by one are one block
    markdown, resources = exporter.from_notebook_node(nbformat.read(path, as_version=4))
    for name, picture in resources["outputs"].items():
        markdown = markdown.replace(f"]({name})", f"](data:image/png;base64,{b64encode(picture).decode()})")
    markdown = markdown.replace('<table border="1" class="dataframe">', "<table>")  # as all tables of the site
    return f"{markdown}\n*[{path.name}](../examples/{path.name}) in the repository; `make notebooks` runs it again.*\n"
