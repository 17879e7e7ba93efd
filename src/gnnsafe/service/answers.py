"""Answers as bytes: decisions as JSON or Arrow, an explanation as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import torch
from starlette.responses import Response

from gnnsafe.detector import Decisions
from gnnsafe.explanation import Explanation
from gnnsafe.report.plotting import drawn, specification
from gnnsafe.service.refusal import as_json

__all__ = ["ARROW", "decisions_answer", "picture", "plain_columns"]

ARROW = "application/vnd.apache.arrow.stream"


def decisions_answer(decisions: Decisions, *, arrow: bool, rows: int | None = None, **about: Any) -> Response:
    """Decisions about nodes, column by column; at most so many `rows`, those of the highest scores, in node order."""
    count = len(decisions)
    if rows is not None and count > rows:
        chosen = torch.zeros(count, dtype=torch.bool)
        chosen[decisions.scores.topk(rows).indices.cpu()] = True
        kept = decisions.of(chosen)
    else:
        kept = decisions
    if arrow:
        return Response(_stream(kept.to_arrow()), media_type=ARROW)
    flagged = int(decisions.flags.sum())
    left_out = {"left_out": count - len(kept)} if len(kept) < count else {}
    answer = {"nodes": count, "flagged": flagged, **about, **left_out, "decisions": plain_columns(kept)}
    try:
        return Response(orjson.dumps(answer), media_type="application/json")  # a tenth of json's time
    except orjson.JSONEncodeError:  # ids that are dates, numbers of more than 64 bits, halves of characters
        return as_json(answer)


def plain_columns(decisions: Decisions) -> dict[str, Any]:
    """The columns of decisions as lists."""
    columns = decisions.columns()
    return {
        name: values.tolist() if isinstance(values, np.ndarray) else list(values) for name, values in columns.items()
    }


def _stream(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def picture(why: Explanation) -> bytes:
    """The nodes around a node, coloured by score, as SVG."""
    return drawn(specification(why.chart()))[".svg"]()
