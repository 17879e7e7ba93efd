"""A detector, or the logits of any model, carried out by an engine: tables in, a folder of decisions out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch

from gnnsafe.calibration import Calibration
from gnnsafe.calibration.decisions import ODD, warn_of_shared
from gnnsafe.detector import Detector
from gnnsafe.engines.engine import Engine
from gnnsafe.engines.inputs import GraphTables, graph_tables
from gnnsafe.engines.plan import DECIDED, ScoringPlan, detector_plan, logits_plan, widest
from gnnsafe.engines.summary import Summary, summarise
from gnnsafe.engines.texts import counted_p_values, flagged_rows, odd_nodes
from gnnsafe.errors import NotFittedError, require
from gnnsafe.files import warned_after
from gnnsafe.progress import progress
from gnnsafe.saving import Saved
from gnnsafe.scores import check_unnormalised

__all__ = ["Asked", "planned", "planned_logits", "score", "score_logits"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What is asked of p-values: one of the two levels, and about which nodes.

    Args:
        false_alarm: Of the ID nodes at most this share is flagged.
        fdr: Of the flagged nodes at most this share is ID.
        storey: With `fdr`, estimate how many nodes are ID instead of counting all.
        nodes: The ids of the nodes to decide about, as text; None: all.
    """

    false_alarm: float | None = None
    fdr: float | None = None
    storey: bool = False
    nodes: Sequence[str] | None = None


def score(
    engine: Engine,
    detector: Detector,
    nodes: Any,
    edges: Any,
    *,
    out: str | os.PathLike[str],
    asked: Asked = Asked(false_alarm=0.05),  # noqa: B008 - frozen
    undirected: bool = False,
    drop_unknown_edges: bool = False,
) -> Summary:
    """Every node of a graph scored and decided about in an engine, as `Detector.decide` does in memory.

    Scores are those of `decide` except for float32's rounding of sums in another order: 1e-5 + 1e-5 · |score|.

        with gnnsafe.engines.DuckDB(memory="4GB") as engine:
            gnnsafe.engines.score(engine, detector, "nodes/", "edges/", out="scores/")

    Args:
        engine: Where to compute, entered.
        detector: Calibrated, with one of our backbones and a method that runs in an engine.
        nodes: A table with `id` and the features: a path, a folder of parts, a glob, or a table that the engine has.
        edges: A table with `source` and `target`.
        out: The folder of Parquet parts to write: id, predicted, probability, score, p_value, flag.
        asked: The level, and about which nodes.
        undirected: Read each edge in both directions, repeated ones once; a detector that does so does so here too.
        drop_unknown_edges: Leave out edges of unknown nodes.

    Returns:
        A summary of all nodes.

    Raises:
        NotFittedError: The detector is not fitted or not calibrated.
        InputError: Model or method cannot run there, or a table breaks a rule; nothing is written then.
    """
    _check_entered(engine)
    plan, calibration = planned(detector)
    engine.check_out(str(out))
    settings = {
        "names": detector.feature_names_, "width": detector.num_features_,
        "both_ways": undirected or detector.undirected, "drop_unknown": drop_unknown_edges,
    }  # fmt: skip
    return _carried_out(engine, plan, calibration, nodes, edges, str(out), asked, detector.class_names_, settings)


def score_logits(
    engine: Engine,
    saved: Saved,
    logits: Any,
    edges: Any,
    *,
    out: str | os.PathLike[str],
    asked: Asked = Asked(false_alarm=0.05),  # noqa: B008 - frozen
    undirected: bool = False,
    drop_unknown_edges: bool = False,
) -> Summary:
    """The same of logits that any model gave, by the method and the calibration of a saved detector.

    Args:
        engine: Where to compute, entered.
        saved: The detector of that model: `saved, _ = gnnsafe.saving.read(Path(folder))`.
        logits: A table with `id` and the logits, in columns of numbers or in one column `logits` of lists.
        edges: A table with `source` and `target`.
        out: The folder of Parquet parts to write.
        asked: The level, and about which nodes.
        undirected: Read each edge in both directions, repeated ones once.
        drop_unknown_edges: Leave out edges of unknown nodes.

    Returns:
        A summary of all nodes.

    Raises:
        NotFittedError: The detector is not calibrated.
        InputError: The method reads more than logits, or a table breaks a rule; nothing is written then.
    """
    _check_entered(engine)
    plan, calibration = planned_logits(saved)
    engine.check_out(str(out))
    known = saved.num_classes or (len(saved.class_names) if saved.class_names else None)
    settings = {"width": known, "both_ways": undirected or saved.undirected, "drop_unknown": drop_unknown_edges}
    return _carried_out(engine, plan, calibration, logits, edges, str(out), asked, saved.class_names, settings)


def planned(detector: Detector) -> tuple[ScoringPlan, Calibration]:
    """How an engine scores by a detector; what none can do is refused here, which needs no engine yet."""
    calibration = detector.calibrated()
    plain = detector.forward is None and detector.node_type is None and detector.classifier is not None
    require(plain, "detector", "have a model of gnnsafe.models, called as it is", repr(detector))
    assert detector.classifier is not None
    detector.check_weights()
    plan = detector_plan(
        detector.classifier.model, detector.method, calibration, task=detector.task, scaling=detector.scaling
    )
    return plan, calibration


def planned_logits(saved: Saved) -> tuple[ScoringPlan, Calibration]:
    """The same of logits."""
    if saved.calibration is None:
        raise NotFittedError("the detector is not calibrated; call calibrate(data) with held-out ID nodes, then save")
    return logits_plan(saved.method, saved.calibration, task=saved.task), saved.calibration


def _carried_out(
    engine: Engine,
    plan: ScoringPlan,
    calibration: Calibration,
    nodes: Any,
    edges: Any,
    out: str,
    asked: Asked,
    class_names: tuple[Any, ...] | None,
    settings: dict[str, Any],
) -> Summary:
    graph = graph_tables(engine, nodes, edges, **settings)
    with progress("Scoring", len(plan.steps) + 4) as advance:
        table = _stepped(engine, plan, graph, advance)
        seen = None if plan.silences is None else plan.silences(engine, table)
        if again := seen is not None and seen.silences:
            log.info("nodes have features that are far off: all steps again, without the edges from these")
            engine.name_rows("heard", table)
            engine.create("said", f"SELECT id, {', '.join(sorted(plan.columns - {*DECIDED}))} FROM heard")
            table = _stepped(engine, plan, graph, advance, silent_from=int(seen.silent_from_))
        table = table if plan.rest is None else plan.rest(seen, engine, table)
        advance()
        if again:  # classes are the model's own
            engine.name_rows("weighed", table)
            kept = ", ".join(f"w.{name}" for name in (*DECIDED, "own", *(["moment"] if graph.times else [])))
            engine.create("decided", f"SELECT said.*, {kept} FROM said JOIN weighed AS w ON said.id = w.id")
        else:
            engine.name_rows("decided", table)
        _check_energies(engine, plan)
        name = _chosen(engine, asked.nodes)
        with warned_after():
            if plan.rest is not None and (odd := calibration.odd_from()) is not None:
                warn_of_shared(*engine.rows(odd_nodes("decided", odd, ODD))[0])
            limit = _limit(engine, name, calibration, asked)
            advance()
            columns = _columns(engine, plan, graph.id_type, class_names)
            said = summarise(engine, name, limit, out, times=graph.times)
            advance()
            engine.write(flagged_rows(_named(name, class_names, plan), limit, columns), out)
        advance()
    return said


def _stepped(
    engine: Engine,
    plan: ScoringPlan,
    graph: GraphTables,
    advance: Callable[[], None],
    *,
    silent_from: int | None = None,
) -> Any:
    """The table after the plan's steps."""
    first, *rest = plan.steps
    table = engine.read(graph, first, width=widest(plan.steps), leaving=plan.out_degrees)
    table = table if silent_from is None else engine.silence(table, plan.silent, silent_from)
    advance()
    for step in rest:
        table = engine.after(table, step)
        log.info("made %s", ", ".join(step.makes) or "no new column")
        advance()
    return table


def _check_entered(engine: object) -> None:
    entered = isinstance(engine, Engine) and engine.entered
    require(entered, "engine", "be one that was entered", type(engine).__name__, "with engines.DuckDB() as engine: …")


def _check_energies(engine: Engine, plan: ScoringPlan) -> None:
    """Of all nodes together: logits, not log-probabilities."""
    if "energy" in plan.columns:
        ((largest,),) = engine.rows("SELECT max(abs(energy)) FROM decided")
        check_unnormalised(torch.tensor([float(largest)]))


def _limit(engine: Engine, name: str, calibration: Calibration, asked: Asked) -> float:
    """The p-value up to which nodes are flagged: of the histogram of p-values, which are few."""
    counted = engine.rows(counted_p_values(name))
    p = torch.tensor([row[0] for row in counted], dtype=torch.float64)
    counts = torch.tensor([row[1] for row in counted])
    return calibration.limit(p, counts, false_alarm=asked.false_alarm, fdr=asked.fdr, storey=asked.storey)


def _chosen(engine: Engine, nodes: Sequence[str] | None) -> str:
    """The rows of the given nodes."""
    if nodes is None:
        return "decided"
    engine.small("asked", pa.table({"node": pa.array(sorted({*nodes}), pa.string())}))
    lost = engine.rows(
        "SELECT node FROM asked WHERE NOT EXISTS (SELECT 1 FROM decided WHERE CAST(id AS STRING) = node) LIMIT 1"
    )
    require(not lost, "--nodes", "hold ids of the graph, one per line", repr(lost[0][0]) if lost else "")
    engine.create("chosen", "SELECT decided.* FROM decided JOIN asked ON CAST(decided.id AS STRING) = asked.node")
    return "chosen"


def _columns(engine: Engine, plan: ScoringPlan, id_type: str | None, class_names: tuple[Any, ...] | None) -> list[str]:
    """The columns of the table that is written."""
    own = "id" if id_type is None else f"CAST(id AS {id_type}) AS id"
    named = "name AS predicted" if class_names is not None else "predicted"
    classified = "predicted" in plan.columns
    if class_names is not None and classified:
        numbers = pa.array(range(len(class_names)), pa.int64())
        engine.small("class_names", pa.table({"class": numbers, "name": pa.array(class_names)}))
    return [own, *([named, "probability"] if classified else []), "score", "p_value"]


def _named(name: str, class_names: tuple[Any, ...] | None, plan: ScoringPlan) -> str:
    if class_names is None or "predicted" not in plan.columns:
        return name
    return f"{name} JOIN class_names ON {name}.predicted = class_names.class"
