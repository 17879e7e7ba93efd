"""A message by HTTP: tried a few times within a time limit, and never more than a warning where it fails."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gnnsafe.errors import require

__all__ = ["check_url", "notified"]

TRIES, TIMEOUT, PAUSE, LIMIT = 3, 3.0, 0.5, 12.0  # seconds; the limit is for all tries together


def check_url(name: str, url: str) -> str:
    """A URL of a web server."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    require(known, name, "be a URL such as https://host/path", repr(url))
    return url


def notified(url: str, message: Mapping[str, Any], *, limit: float = LIMIT) -> str | None:
    """Post the message as JSON; what went wrong where it was not delivered, None where it was.

    It works in a thread that is left behind at the time limit, so that not even a name server that never answers can
    hold up the caller.
    """
    found: list[str | None] = []
    body = json.dumps(message).encode()
    worker = threading.Thread(target=lambda: found.append(_tried(check_url("url", url), body)), daemon=True)
    worker.start()
    worker.join(limit)
    return found[0] if found else f"no answer within {limit:g} seconds"


def _tried(url: str, body: bytes) -> str | None:
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT):
                return None
        except urllib.error.HTTPError as error:
            reason = f"status {error.code}"
            error.close()
        except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
            reason = str(getattr(error, "reason", error))
    return f"{reason}, {TRIES} times"
