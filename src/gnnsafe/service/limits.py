"""What a request may ask for, and how much is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from importlib.metadata import version
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from gnnsafe.errors import require_whole
from gnnsafe.service.refusal import RefusedError

__all__ = ["VERSION", "Limits", "Pool", "body", "body_stream"]

VERSION = version("gnnsafe")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """The most that a request may bring and take, and how many are worked on at once."""

    body: int = 64 * 2**20
    """Bytes of a request."""
    nodes: int = 2_000_000
    edges: int = 20_000_000
    rows: int = 10_000
    """Decisions in an answer about a change; the most unusual ones."""
    seconds: int = 60
    """For the scoring of a request, and once more for its body to arrive."""
    workers: int = 2
    waiting: int = 64
    """Requests that wait for a worker; more are told to come back later."""

    def __post_init__(self) -> None:
        for field in fields(self):
            require_whole(field.name, getattr(self, field.name), 0 if field.name == "waiting" else 1)

    def check_graph(self, nodes: int, edges: int) -> None:
        """Raise a `RefusedError` where a graph is too large."""
        for name, count, most in (("nodes", nodes, self.nodes), ("edges", edges, self.edges)):
            if count > most:
                raise RefusedError(
                    413, f"'{name}' must be at most {most:,} (got {count:,}); score it with gnnsafe score"
                )


class Pool:
    """Threads that score, so that the event loop never does: so many at work, so many waiting, each for so long."""

    def __init__(self, limits: Limits) -> None:
        self._executor = ThreadPoolExecutor(limits.workers, thread_name_prefix="scoring")
        self._most, self._seconds = limits.workers + limits.waiting, limits.seconds
        self.pending = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        """What `work` returns; a `RefusedError` with 429 where too many wait, with 504 where it takes too long.

        What has begun goes on to its end even then, and counts until it has ended.
        """
        if self.pending >= self._most:
            raise RefusedError(429, f"{self.pending} requests are being worked on or wait; come back in a second")
        self.pending += 1
        future = self._executor.submit(work)
        waiting = asyncio.wrap_future(future)
        waiting.add_done_callback(self._ended)
        done, _ = await asyncio.wait([waiting], timeout=self._seconds)
        if not done:
            future.cancel()  # where it has not begun
            raise RefusedError(504, f"the answer took longer than {self._seconds} s; ask about less at a time")
        return waiting.result()

    def _ended(self, future: asyncio.Future[Result]) -> None:
        self.pending -= 1
        if not future.cancelled():
            future.exception()  # seen, even where nothing waits for it any more

    def close(self) -> None:
        """Finish what was accepted."""
        self._executor.shutdown(wait=True)


async def body_stream(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """The request's body, piece by piece, at most so many bytes and in at most so many seconds."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(415, "'Content-Encoding' must be left out: send the body as it is")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limits.body:
        raise _too_large(limits)
    received, end = 0, asyncio.get_running_loop().time() + limits.seconds
    pieces = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(end):
                piece = await anext(pieces, None)
        except TimeoutError as error:
            raise RefusedError(408, f"the body took longer than {limits.seconds} s to arrive") from error
        except ClientDisconnect as error:
            raise RefusedError(400, "the client went away before its request had arrived") from error
        if piece is None:
            return
        received += len(piece)
        if received > limits.body:
            raise _too_large(limits)
        yield piece


async def body(request: Request, limits: Limits, *kinds: str) -> bytes:
    """The request's body whole, once its content type is one of these."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise RefusedError(415, f"'Content-Type' must be {' or '.join(kinds)} (got {kind!r})")
    return b"".join([piece async for piece in body_stream(request, limits)])


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError(413, f"the body must be at most {limits.body:,} bytes; send less at a time, or as Parquet")
