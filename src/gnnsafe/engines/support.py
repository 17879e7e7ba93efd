"""What runs in an engine, and how what does not is refused: by name, before any work, with the way that can."""

from __future__ import annotations

from typing import Any

from gnnsafe.engines.backbones import BACKBONES
from gnnsafe.errors import require
from gnnsafe.methods import (
    GEN,
    GKDE,
    KNN,
    MSP,
    DiffusedKNN,
    Energy,
    Entropy,
    GNNSafe,
    Mahalanobis,
    MaxLogit,
    Method,
    Propagated,
    ViM,
)

__all__ = ["check_method", "check_model", "innermost", "reads_embeddings"]

LOGITS = (MSP, MaxLogit, Entropy, GEN, Energy, GNNSafe, GKDE)
EMBEDDINGS = (KNN, Mahalanobis, DiffusedKNN, ViM)
REMEDY = "score in memory (--engine memory), or by another method: gnnsafe refit … --method gnnsafe"
FOREIGN = "write its logits to a table and take score-logits"


def innermost(method: Method) -> Any:
    """The method whose scores are propagated, however often."""
    return innermost(method.method) if isinstance(method, Propagated) else method


def reads_embeddings(method: Method) -> bool:
    """Whether it reads the penultimate embedding."""
    return type(innermost(method)) in EMBEDDINGS


def check_method(method: Method, *, logits_only: bool) -> None:
    """It reads each node's own logits, or own embedding and what it learnt, and propagates."""
    inner = innermost(method)
    runs = type(inner) in (LOGITS if logits_only else (*LOGITS, *EMBEDDINGS))
    names = ", ".join(one.__name__ for one in (LOGITS if logits_only else (*LOGITS, *EMBEDDINGS)))
    moved = isinstance(inner, Mahalanobis) and inner.epsilon > 0
    require(runs and not moved, "method", f"be one that runs in an engine ({names}, propagated or not)", repr(inner),
            REMEDY)  # fmt: skip


def check_model(model: Any) -> None:
    """It is one of our backbones, as it was made."""
    names = ", ".join(one.__name__ for one in BACKBONES)
    rule = f"be one that runs in an engine ({names})"
    require(type(model) in BACKBONES, "model", rule, type(model).__name__, FOREIGN)
