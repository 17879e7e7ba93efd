"""What runs in an engine, and how what does not is refused: by name, before any work, with the way that can."""

from __future__ import annotations

from typing import Any

from gnnsafe.engines.backbones import ENGINE_BACKBONES
from gnnsafe.errors import require
from gnnsafe.methods import (
    GEN,
    GKDE,
    KNN,
    MSP,
    CentredCosine,
    DegreeBalance,
    DiffusedKNN,
    Energy,
    Entropy,
    FeatureDistance,
    GNNSafe,
    InDegree,
    Mahalanobis,
    MaxLogit,
    Method,
    OutDegree,
    OutOfPlace,
    Propagated,
    TwoScale,
    ViM,
)
from gnnsafe.saving import Saved

__all__ = ["check_method", "check_model", "check_saved", "innermost", "reads_degrees", "reads_embeddings"]

LOGITS = (MSP, MaxLogit, Entropy, GEN, Energy, GNNSafe, GKDE)
EMBEDDINGS = (KNN, Mahalanobis, DiffusedKNN, ViM)
DEGREES = (DegreeBalance, InDegree, OutDegree)
ALL = (*LOGITS, *EMBEDDINGS, *DEGREES, OutOfPlace, CentredCosine, FeatureDistance)
REMEDY = "score in memory (--engine memory), or by another method: gnnsafe refit … --method two-scale"
LOGITS_REMEDY = "fit and calibrate a detector with one of these"
FOREIGN = "write its logits to a table and take score-logits"


def innermost(method: Method) -> Any:
    """The method whose scores are propagated, however often."""
    return innermost(method.method) if isinstance(method, Propagated) else method


def reads_embeddings(method: Method) -> bool:
    """Whether it reads the penultimate embedding."""
    inner = innermost(method)
    return type(inner) in EMBEDDINGS or (isinstance(inner, OutOfPlace) and inner.of == "embedding")


def reads_degrees(method: Method) -> bool:
    """Whether it reads how many edges leave a node."""
    return type(innermost(method)) in DEGREES


def check_method(method: Method, *, logits_only: bool) -> None:
    """It reads a node's own outputs, or what is known to be aggregated from neighbours, and propagates all alike."""
    known = LOGITS if logits_only else (*ALL, TwoScale)
    names = ", ".join(one.__name__ for one in known)
    rule = f"be one that runs in an engine {'on logits alone ' if logits_only else ''}({names}, propagated or not)"
    remedy = LOGITS_REMEDY if logits_only else REMEDY
    weighs = type(method) is TwoScale and not logits_only
    for one in method.parts() if weighs else (method,):
        inner = innermost(one)
        runs = type(inner) in (LOGITS if logits_only else ALL)
        moved = isinstance(inner, Mahalanobis) and inner.epsilon > 0
        require(runs and not moved, "method", rule, repr(inner), remedy)
        require(_alike(one), "method", "weigh neighbours equally in an engine", repr(one), remedy)


def _alike(method: Method) -> bool:
    within = not isinstance(method, Propagated) or _alike(method.method)
    return within and method.propagation.weighting == "equal"


def check_model(model: Any) -> None:
    """It is one of our backbones, as it was made."""
    _require_ours(type(model) in ENGINE_BACKBONES, type(model).__name__)


def check_saved(saved: Saved) -> None:
    """Its model can be loaded: where only its user's code could, that code would not run in an engine either."""
    if saved.model is not None:
        foreign = saved.model.registered is None or saved.forward
        _require_ours(not foreign, saved.model.name + (" with a forward of its own" if saved.forward else ""))


def _require_ours(holds: bool, name: str) -> None:
    names = ", ".join(one.__name__ for one in ENGINE_BACKBONES)
    require(holds, "model", f"be one that runs in an engine ({names})", name, FOREIGN)
