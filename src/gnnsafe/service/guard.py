"""What stands before every route: who may ask, what is counted and logged, and what a browser may do with an answer."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gnnsafe.service.metrics import Metrics
from gnnsafe.service.refusal import refused

__all__ = ["COOKIE", "Guard", "Keys"]

COOKIE = "gnnsafe_page"
UNANSWERED = 499  # a client that went away before an answer
OPEN = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/login", "/static/")  # without a token
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends "Origin: null" with our own forms
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = logging.getLogger("gnnsafe.service")


class Keys:
    """The token, and the cookie that a page has instead; both are compared in constant time."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else _hash(token)
        self.cookie = secrets.token_urlsafe(32)

    @property
    def needed(self) -> bool:
        """Whether a token is asked for."""
        return self._token is not None

    def fits(self, token: str) -> bool:
        """Whether this is the token."""
        return self._token is None or hmac.compare_digest(_hash(token), self._token)

    def admits(self, headers: Headers) -> bool:
        """Whether a request brings the token, or the cookie of a page that did."""
        if self._token is None:
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.fits(token.strip()):
            return True
        cookies = cookie_parser(headers.get("cookie", ""))  # other services' cookies may break the rules
        return hmac.compare_digest(_hash(cookies.get(COOKIE, "")), _hash(self.cookie))


class Guard:
    """ASGI middleware: refuses strangers, adds headers, counts and logs."""

    def __init__(self, app: ASGIApp, *, keys: Keys, hosts: tuple[str, ...], metrics: Metrics) -> None:
        self._app, self._keys, self._hosts, self._metrics = app, keys, hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, told = time.perf_counter(), {"status": UNANSWERED, "gone": False}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                told["gone"] = await Request(scope, receive).is_disconnected()  # a server sends to nobody in silence
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refusal = self._refusal(scope["path"], Headers(scope=scope))
            await (self._app if refusal is None else refusal)(scope, receive, answer)
        except Exception as error:
            number = secrets.token_hex(4)
            log.error("failure", extra={"number": number}, exc_info=error)
            if told["status"] != UNANSWERED:
                raise  # half of an answer is out: the connection ends
            sorry = refused(500, f"an error of the service, which its log has as {number}")
            await sorry(scope, receive, answer)
        finally:
            self._tell(scope, int(told["status"]), time.perf_counter() - begun, gone=bool(told["gone"]))

    def _refusal(self, path: str, headers: Headers) -> Any:
        host = headers.get("host", "")
        if not self._keys.needed and _name(host) not in self._hosts:  # a page elsewhere may lead its own name here
            return refused(421, f"'Host' must be one of {', '.join(self._hosts)} (got {host[:80]!r})")
        origin = headers.get("origin")
        if origin is not None and urlsplit_netloc(origin) != host:
            return refused(403, f"'Origin' must be this service's own (got {origin[:80]!r}); no other site may ask")
        if path.startswith(OPEN) or self._keys.admits(headers):
            return None
        if headers.get("accept", "").startswith("text/html"):  # a person's browser
            return RedirectResponse("/login", 303)
        return refused(
            401, "a token is needed: send 'Authorization: Bearer TOKEN', or log in at /login",
            {"WWW-Authenticate": "Bearer"},
        )  # fmt: skip

    def _tell(self, scope: Scope, status: int, seconds: float, *, gone: bool) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self._metrics.request(method, route, status, seconds)
        about = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 2)}
        log.info("request", extra={**about, **({"client": "gone before its answer"} if gone else {})})


def urlsplit_netloc(origin: str) -> str:
    """The host and port of an origin; nothing for one that is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name(host: str) -> str:
    """A host without its port."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0].lower()


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
