"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.responses import Response

from gnnsafe.service.api import graph_router
from gnnsafe.service.guard import Guard, Keys
from gnnsafe.service.inference import inference_router
from gnnsafe.service.limits import VERSION
from gnnsafe.service.metrics import CONTENT_TYPE
from gnnsafe.service.page import page_router, renderer
from gnnsafe.service.refusal import add_handlers, as_json, documented
from gnnsafe.service.state import Service

__all__ = ["LOOPBACK", "create_app"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
TICK = 30.0  # seconds between looks at the journal's size

log = logging.getLogger("gnnsafe.service")


def create_app(service: Service, *, token: str | None = None, hosts: tuple[str, ...] = LOOPBACK) -> FastAPI:
    """The application; closing it finishes what was accepted and closes the service.

    Args:
        service: Its models, and the graph that it keeps where there is one.
        token: What requests must bring as `Authorization: Bearer`; None asks for nothing, which is for loopback alone.
        hosts: Names that requests may be for where no token is asked for, so that no page elsewhere can lead here.

    Returns:
        An ASGI application for uvicorn or any other server, with one process.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ticking = asyncio.create_task(_tick(service))
        if service.watch is not None:
            threading.Thread(target=service.watch.run, args=(service.enter,), daemon=True).start()
        yield
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        service.draining = True
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="gnnsafe", version=VERSION, docs_url=None, redoc_url=None, lifespan=lifespan,
        summary="Which nodes of a graph lie outside what its classifier was trained on",
    )  # fmt: skip
    keys = Keys(token)
    rendered = renderer(service, keys)
    add_handlers(app, log, lambda status, **told: rendered("error.html", status, here="", **told))
    app.add_middleware(Guard, keys=keys, hosts=hosts, metrics=service.metrics)
    app.include_router(inference_router(service))
    app.include_router(graph_router(service))
    app.include_router(page_router(service, app, keys, rendered))
    _add_health(app, service)
    _forget_unsent(app)
    return app


def _forget_unsent(app: FastAPI) -> None:
    """Without the 422 that FastAPI writes into its document: what breaks a rule is 400 here."""
    document = app.openapi()
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for schema in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(schema, None)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["Health"], summary="Whether the process is there", responses=documented())
    async def health() -> Response:
        return as_json({"alive": True})

    @app.get("/readyz", tags=["Health"], summary="Whether all is well, and what is not", responses=documented())
    async def ready() -> Response:
        wrong = service.problems()
        return as_json({"ready": not wrong, "problems": wrong}, 503 if wrong else 200)

    @app.get("/metrics", tags=["Health"], summary="For Prometheus", responses=documented())
    async def metrics() -> Response:
        return Response(await service.pool.run(service.metrics.text), media_type=CONTENT_TYPE)


async def _tick(service: Service) -> None:
    """The journal of the kept graph is compacted from time to time."""
    while True:
        await asyncio.sleep(TICK)
        try:
            await asyncio.to_thread(service.compact)
        except Exception:
            log.exception("compaction failed")
