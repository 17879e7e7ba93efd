"""Detectors over HTTP: the Open Inference Protocol, graphs that are scored or kept, and a page to look at them."""

from __future__ import annotations

from gnnsafe.errors import MissingExtraError

try:
    from gnnsafe.service.app import create_app
    from gnnsafe.service.limits import Limits
    from gnnsafe.service.state import Service
except ModuleNotFoundError as error:
    raise MissingExtraError(f"the service needs {error.name}: pip install 'gnnsafe[serve]'") from error

__all__ = ["Limits", "Service", "create_app"]
