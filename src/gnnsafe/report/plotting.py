"""The plotting library, and a chart as a file or for a page that needs no network."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnsafe.display import shown
from gnnsafe.errors import MissingExtraError
from gnnsafe.files import replacing

__all__ = ["altair", "drawn", "save_chart", "specification", "vega_library"]


def altair() -> Any:
    """The plotting library, or one line on how to get it."""
    try:
        importlib.import_module("vl_convert")  # carries the JavaScript that makes a page work offline
        return importlib.import_module("altair")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the report needs {error.name}: pip install 'gnnsafe[report]'") from error


def specification(chart: Any) -> dict[str, Any]:
    """What draws it, as all our charts look."""
    chart = chart.configure_view(stroke=None).configure_axis(gridOpacity=0.35, titleFontWeight="normal")
    chart = chart.configure_legend(orient="top", labelFontSize=12, columns=6, symbolStrokeWidth=3)
    return dict(_clean(chart.to_dict(validate=False)))  # the checks of a schema as large as Vega's take seconds


def _clean(spec: Any) -> Any:
    """With texts as they may be drawn: a control character ends the whole process, by a panic of the library."""
    if isinstance(spec, dict):
        return {key: _clean(value) for key, value in spec.items()}
    return [_clean(item) for item in spec] if isinstance(spec, list) else shown(spec) if isinstance(spec, str) else spec


def vega_library() -> str:
    """The JavaScript that draws charts, fit for a <script>."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # its stub asks for a snippet that it does not need
    return str(bundle(vl_version=_version()))


def drawn(spec: dict[str, Any]) -> dict[str, Callable[[], bytes]]:
    """The chart as a picture, by the ending of its file: drawn when asked for."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(json.dumps(_still(spec)), vl_version=_version())
    return {
        ".svg": svg.encode,
        ".png": lambda: vl_convert.svg_to_png(svg, scale=2),
        ".pdf": lambda: vl_convert.svg_to_pdf(svg),
    }


def save_chart(spec: dict[str, Any], stem: Path) -> list[Path]:
    """Write the chart as SVG, PNG and PDF, each whole or not at all; returns the files."""
    paths = []
    for ending, draw in drawn(spec).items():
        paths.append(stem.with_name(stem.name + ending))
        with replacing(paths[-1]) as part:
            part.write_bytes(draw())
    return paths


def _still(spec: Any) -> Any:
    """Without the invisible marks, which are there for the pointer, and without words for screen readers."""
    if isinstance(spec, dict):
        spec = {key: _still(value) for key, value in spec.items()}
        if "layer" in spec:
            seen = [layer for layer in spec["layer"] if layer["mark"].get("opacity") != 0]
            return {**spec, "layer": seen}
        return {**spec, "config": {**spec["config"], "aria": False}} if "config" in spec else spec
    return [_still(item) for item in spec] if isinstance(spec, list) else spec


def _version() -> str:
    return ".".join(altair().SCHEMA_VERSION.removeprefix("v").split(".")[:2])
