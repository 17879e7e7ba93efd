"""The page: one glance, the nodes, a node, and a graph to upload; templates are filled on the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, FastAPI, Request
from fastapi import Query as Parameter
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import FileResponse, RedirectResponse, Response

from gnnsafe.display import shown
from gnnsafe.evolving import Query
from gnnsafe.explanation import Explanation, Share
from gnnsafe.explanation.result import NAMED
from gnnsafe.service.api import node_row
from gnnsafe.service.glance import overview, uploaded
from gnnsafe.service.guard import COOKIE, Keys
from gnnsafe.service.limits import VERSION, body, body_stream
from gnnsafe.service.refusal import RefusedError
from gnnsafe.service.sampling import MapOf
from gnnsafe.service.state import Service
from gnnsafe.service.uploads import graph_of_tables, received

__all__ = ["page_router", "renderer"]

FORM = "application/x-www-form-urlencoded"
STATIC = Path(__file__).parent / "static"
FILES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
PAGE = 50  # nodes
NEIGHBOURS = 20


def environment() -> Environment:
    """Templates, in which every text is escaped, and what would act rather than be seen is written out."""
    made = Environment(
        loader=PackageLoader("gnnsafe.service"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(shown=shown, at=lambda name: quote(str(name), safe=""), short=_short)
    made.globals.update(version=VERSION)
    return made


def renderer(service: Service, keys: Keys) -> Callable[..., Response]:
    """What fills a template with values, for an answer of a status."""
    templates = environment()

    def rendered(template: str, status: int = 200, **values: Any) -> Response:
        text = templates.get_template(template).render(kept=service.kept is not None, login=keys.needed, **values)
        return Response(text.encode("utf-8", "backslashreplace"), status, media_type="text/html; charset=utf-8")

    return rendered


def page_router(service: Service, app: FastAPI, keys: Keys, rendered: Callable[..., Response]) -> APIRouter:
    """The routes of the page."""
    router = APIRouter(include_in_schema=False)
    kept_map = None if service.kept is None else MapOf(service.kept)
    entered = None if service.watch is None else service.models.first  # the model whose uploads go into the history

    @router.get("/")
    async def index() -> Response:
        return await service.pool.run(lambda: rendered("index.html", here="/", **overview(service, kept_map)))

    @router.get("/nodes")
    async def nodes(
        flagged: Literal["", "true", "false"] = "",
        predicted: str = Parameter("", max_length=1000),
        search: str = Parameter("", max_length=1000),
        sort: Literal["score", "p_value", "probability"] = "score",
        reverse: Literal["", "true"] = "",
        page: int = Parameter(1, ge=1, le=10**8),
    ) -> Response:
        kept = service.graph()
        asked = {"flagged": flagged, "predicted": predicted, "search": search, "sort": sort, "reverse": reverse}
        query = Query(
            {"": None, "true": True, "false": False}[flagged], predicted or None, search, sort, bool(reverse),
            (page - 1) * PAGE, PAGE,
        )  # fmt: skip

        def work() -> Response:
            total, rows = kept.columns.listed(query)
            classes = sorted(kept.columns.summary().classes)
            return rendered(
                "nodes.html", here="/nodes", rows=rows, total=total, page=page, pages=max(1, -(-total // PAGE)),
                asked=asked, classes=classes, link=lambda **other: f"/nodes?{_query({**asked, **other})}",
            )  # fmt: skip

        return await service.pool.run(work)

    @router.get("/nodes/{id:path}")
    async def node(id: str) -> Response:  # noqa: A002
        kept, row = service.graph(), node_row(service, id)

        def work() -> Response:
            why = kept.explain(id)
            if why is None:
                raise RefusedError(404, "the node has gone")
            shares, left_out = _counted(why)
            drawn = {one["node"]: one for one in why.ego[0]}
            near = [one for one in drawn.values() if one["node"] != why.node][:NEIGHBOURS]
            return rendered(
                "node.html", here="/nodes", row=row, why=why, shares=shares, left_out=left_out, near=near,
                name=lambda number: why.node_ids.get(number, number), text=str(why), alt=_alt(why),
                named=lambda label: label if why.class_names is None else why.class_names[label],
            )  # fmt: skip

        return await service.pool.run(work)

    @router.get("/upload")
    async def form() -> Response:
        names = [model.name for model in service.models]
        return rendered("upload.html", here="/upload", models=names, entered=entered, found=None)

    @router.post("/upload")
    async def upload(request: Request, model: str | None = None) -> Response:
        found = service.models[model]
        tables = await received(request, body_stream(request, service.limits))

        def work() -> Response:
            with tables as folder:
                data = graph_of_tables(folder, service.limits, undirected=found.detector.undirected)
            decisions = service.decide(found, data, name="upload", false_alarm=service.false_alarm)
            names = [one.name for one in service.models]
            told = uploaded(decisions, found.detector, found.name, service.false_alarm)
            return rendered("upload.html", here="/upload", models=names, entered=entered, found=told)

        return await service.pool.run(work)

    @router.get("/docs")
    async def docs() -> Response:
        return rendered("docs.html", here="/docs", paths=app.openapi()["paths"])

    @router.get("/login")
    async def ask() -> Response:
        return rendered("login.html", here="/login", wrong=False)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        content = await body(request, service.limits, FORM)
        token = parse_qs(content[:10_000].decode("ascii", "replace")).get("token", [""])[0]
        if not keys.fits(token):
            return rendered("login.html", 401, here="/login", wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, keys.cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in FILES:
            raise RefusedError(404, "there is no such file")
        return FileResponse(STATIC / name, media_type=FILES[name], headers={"Cache-Control": "max-age=3600"})

    return router


def _query(values: dict[str, Any]) -> str:
    return urlencode({name: value for name, value in values.items() if value not in ("", None, 1)})


def _short(value: Any) -> str:
    """A number in few letters."""
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def _counted(why: Explanation) -> tuple[list[Share], list[Share]]:
    """Who is listed as counting in a score: itself, those that its text names, and the heaviest; and who is not."""
    others = [share for share in why.shares if share.node != why.node]
    pulling = sorted(others, key=lambda share: share.weight * (share.score - why.score))
    wanted = {why.node: None} | {share.node: None for share in (*pulling[:NAMED], *pulling[-NAMED:], *why.shares)}
    listed = set(list(wanted)[:NEIGHBOURS])
    return [one for one in why.shares if one.node in listed], [one for one in why.shares if one.node not in listed]


def _alt(why: Explanation) -> str:
    """What the picture of a node's surroundings shows, in words."""
    nodes, _ = why.ego
    high = sorted((one for one in nodes if one["node"] != why.node), key=lambda one: -one["score"])[:3]
    around = ", ".join(f"{why.node_ids.get(one['node'], one['node'])} ({one['score']:.3g})" for one in high)
    count = f"{len(nodes) - 1} node{'s' * (len(nodes) != 2)}"
    return f"The node and {count} around it, coloured by score. The highest: {around or 'none'}."
