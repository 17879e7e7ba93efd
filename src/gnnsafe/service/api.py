"""Graphs over HTTP: scored as they come, or kept and changed."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi import Query as Parameter
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from gnnsafe.errors import require
from gnnsafe.evolving import Query, Row
from gnnsafe.service.answers import ARROW, decisions_answer, picture
from gnnsafe.service.limits import body, body_stream
from gnnsafe.service.refusal import RefusedError, as_json, documented
from gnnsafe.service.state import Service
from gnnsafe.service.tensors import parsed
from gnnsafe.service.uploads import MULTIPART, graph_of_json, graph_of_tables, received

__all__ = ["graph_router"]

JSON = "application/json"
LONGEST = 1000  # letters of an id


class NodeRecord(BaseModel):
    """A node that came or changed."""

    model_config = ConfigDict(extra="forbid")
    id: str | int
    features: list[float]


class ChangesRecord(BaseModel):
    """Nodes and edges that came, changed and went."""

    model_config = ConfigDict(extra="forbid")
    nodes: list[NodeRecord] = []
    edges: list[tuple[str | int, str | int]] = []
    remove_nodes: list[str | int] = []
    remove_edges: list[tuple[str | int, str | int]] = []


class GraphRecord(BaseModel):
    """A graph: features of the nodes, and edges from the nodes in the first row to those in the second."""

    model_config = ConfigDict(extra="forbid")
    x: list[list[float]]
    edge_index: list[list[int]]
    node_id: list[str | int] | None = None


def graph_router(service: Service) -> APIRouter:
    """The routes under /v1."""
    router = APIRouter(prefix="/v1", tags=["Graphs"])
    limits = service.limits

    @router.get("/models", summary="The models", responses=documented())
    async def models() -> Response:
        return as_json([
            {"name": one.name, "version": one.version, "method": repr(one.detector.method), "loaded_at": one.loaded_at}
            for one in service.models
        ])  # fmt: skip

    @router.post("/models/{name}/reload", summary="Read a model's own folder again", responses=documented())
    async def reload(name: str) -> Response:
        model = await service.pool.run(lambda: service.reload(name))
        return as_json({"name": model.name, "version": model.version})

    sent = {JSON: _schema(GraphRecord), MULTIPART: {"schema": {"type": "object", "required": ["nodes", "edges"],
            "properties": {part: {"type": "string", "format": "binary"} for part in ("nodes", "edges")}}}}  # fmt: skip

    @router.post(
        "/score", summary="Decisions about every node of a graph: JSON, or tables of nodes and edges (Parquet, Arrow, "
        "CSV); as JSON or, by Accept, as an Arrow stream",
        responses=documented(408, 413, 415), openapi_extra={"requestBody": {"required": True, "content": sent}},
    )  # fmt: skip
    async def score(
        request: Request,
        model: str | None = None,
        false_alarm: float | None = Parameter(None, gt=0, lt=1),
        fdr: float | None = Parameter(None, gt=0, lt=1),
    ) -> Response:
        found = service.models[model]
        require(false_alarm is None or fdr is None, "fdr", "be left out where false_alarm is given", fdr)
        level = None if fdr else false_alarm or service.false_alarm
        arrow = ARROW in request.headers.get("accept", "")
        if request.headers.get("content-type", "").startswith(MULTIPART):
            tables = await received(request, body_stream(request, limits))

            def work() -> Response:
                with tables as folder:
                    data = graph_of_tables(folder, limits, undirected=found.detector.undirected)
                return decisions_answer(service.decide(found, data, false_alarm=level, fdr=fdr), arrow=arrow)
        else:
            content = await body(request, limits, JSON, MULTIPART)

            def work() -> Response:
                data = graph_of_json(parsed(content), limits)
                return decisions_answer(service.decide(found, data, false_alarm=level, fdr=fdr), arrow=arrow)

        return await service.pool.run(work)

    @router.get("/graph", summary="The kept graph at a glance", responses=documented())
    async def graph() -> Response:
        return as_json(await service.pool.run(lambda: _glance(service)))

    @router.post(
        "/graph/changes", summary="Nodes and edges that came, changed, went: new scores of all nodes that they affect",
        responses=documented(408, 413, 415),
        openapi_extra={"requestBody": {"required": True, "content": {JSON: _schema(ChangesRecord)}}},
    )  # fmt: skip
    async def changes(request: Request) -> Response:
        service.graph()
        content = await body(request, limits, JSON)

        def work() -> Response:
            change = service.change(parsed(content))
            about = {"version": change.version, "whole": change.whole}
            return decisions_answer(change.decisions, arrow=False, rows=limits.rows, **about)

        return await service.pool.run(work)

    @router.post(
        "/graph/rescore", summary="Score all of the kept graph again, with new weights", responses=documented()
    )
    async def rescore() -> Response:
        kept = service.graph()

        def work() -> dict[str, Any]:
            kept.rescore()
            return _glance(service)

        return as_json(await service.pool.run(work))

    @router.get("/nodes", summary="Nodes of the kept graph, the most unusual first", responses=documented())
    async def nodes(
        flagged: bool | None = None,
        predicted: str | None = Parameter(None, max_length=LONGEST),
        search: str = Parameter("", max_length=LONGEST),
        sort: Literal["score", "p_value", "probability"] = "score",
        reverse: bool = False,
        offset: int = Parameter(0, ge=0, le=2**31),
        limit: int = Parameter(50, ge=1, le=1000),
    ) -> Response:
        kept = service.graph()
        query = Query(flagged, predicted, search, sort, reverse, offset, limit)
        total, rows = await service.pool.run(lambda: kept.columns.listed(query))
        return as_json({"total": total, "offset": offset, "nodes": [row._asdict() for row in rows]})

    @router.get(
        "/nodes/{id:path}/explanation", summary="Why a node has its score: text, JSON or SVG", responses=documented()
    )
    async def explanation(id: str, format: Literal["json", "text", "svg"] = "json") -> Response:  # noqa: A002
        kept = service.graph()
        why = await service.pool.run(lambda: kept.explain(id))
        if why is None:
            raise _no_node(id)
        if format == "text":
            return Response(f"{why}\n", media_type="text/plain; charset=utf-8")
        if format == "svg":
            return Response(await service.pool.run(lambda: picture(why)), media_type="image/svg+xml")
        return as_json(why.to_dict())

    @router.get("/nodes/{id:path}", summary="What was decided about a node", responses=documented())
    async def node(id: str) -> Response:  # noqa: A002
        return as_json(node_row(service, id)._asdict())

    return router


def node_row(service: Service, name: str) -> Row:
    """What was decided about a node of the kept graph; a `RefusedError` where it is not there."""
    kept = service.graph()
    number = kept.graph.number(name)
    row = None if number is None else kept.columns.row(number)
    if row is None:
        raise _no_node(name)
    return row


def _no_node(name: str) -> RefusedError:
    return RefusedError(404, f"'id' must be a node of the kept graph (got {name[:80]!r})")


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs", {})

    def inlined(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return inlined(parts[value["$ref"].rpartition("/")[2]])
            return {key: inlined(one) for key, one in value.items()}
        return [inlined(one) for one in value] if isinstance(value, list) else value

    return {"schema": inlined(schema)}


def _glance(service: Service) -> dict[str, Any]:
    kept = service.graph()
    summary = kept.columns.summary()
    return {
        **summary._asdict(),
        "edges": kept.graph.num_edges,
        "version": kept.version,
        "changed_at": kept.changed_at or None,
        "scored_whole_at": kept.whole_at,
        "hops": kept.reach,
        "false_alarm": kept.false_alarm,
    }
