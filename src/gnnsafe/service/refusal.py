"""What a client is told when something is wrong: one sentence as {"error": …} or as a page, never a stack trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gnnsafe.display import shown
from gnnsafe.errors import GnnsafeError, UnknownNameError

__all__ = ["ErrorBody", "RefusedError", "add_handlers", "as_json", "documented", "refused"]

LONGEST = 600  # letters of a sentence: what it quotes may be long
PROGRAMS = ("/v1/", "/v2")  # paths that are asked by programs, whatever they accept
WORDS = {
    400: "the request breaks a rule",
    401: "a token is needed",
    403: "another site sent this",
    404: "there is no such thing",
    405: "not this way",
    408: "the body took too long to arrive",
    413: "too large",
    415: "of a kind that is not read",
    421: "for another host",
    429: "too much at once: come back later",
    503: "not now: the log and /readyz say why",
    504: "took too long",
}


class ErrorBody(BaseModel):
    """What went wrong."""

    error: str = Field(description="One sentence.")


class RefusedError(Exception):
    """A request that is refused: its status, and a sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = headers or ({"Retry-After": "1"} if status in (429, 503) else {})


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These statuses, and those that any request may get, for OpenAPI."""
    every = sorted({*statuses, 400, 401, 403, 404, 421, 429, 503, 504})
    return {status: {"model": ErrorBody, "description": WORDS[status]} for status in every}


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON; no number in it is NaN or infinite."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, "application/json")


def refused(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    """The answer to a refused request."""
    return as_json({"error": _cut(sentence)}, status, headers)


def _cut(sentence: str) -> str:
    text = shown(sentence)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def add_handlers(app: FastAPI, log: logging.Logger, page: Callable[..., Response]) -> None:
    """Every way in which a request can fail has its answer; for unforeseen errors, the guard has one.

    A person's browser that asked for a page gets one, by `page`; all others get JSON.
    """

    def answer(request: Request, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
        person = request.headers.get("accept", "").startswith("text/html")
        if not person or request.url.path.startswith(PROGRAMS):
            return refused(status, sentence, headers)
        made = page(status, title=WORDS.get(status, "it cannot be shown"), sentence=_cut(sentence))
        made.headers.update(headers or {})
        return made

    async def on_refusal(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return answer(request, error.status, error.sentence, error.headers)

    async def on_input(request: Request, error: Exception) -> Response:
        return answer(request, 404 if isinstance(error, UnknownModelError) else 400, str(error))

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = first["loc"][-1] if first["loc"] else "request"
        got = f"{str(first.get('input'))[:80]!r}"
        return answer(request, 400, f"'{place}' must be given otherwise: {first['msg']} (got {got})")

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(request, error.status_code, str(error.detail), dict(error.headers or {}))

    async def on_disk(request: Request, error: Exception) -> Response:
        assert isinstance(error, OSError)
        log.error("disk", extra={"reason": f"{error.strerror}: {error.filename}"})
        return answer(request, 503, f"the service cannot write: {error.strerror}; nothing of the request was done")

    handlers = {
        RefusedError: on_refusal, GnnsafeError: on_input, OSError: on_disk, HTTPException: on_http,
        RequestValidationError: on_validation,
    }  # fmt: skip
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


class UnknownModelError(UnknownNameError):
    """No model of that name is served."""
