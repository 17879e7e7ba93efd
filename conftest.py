"""For doctests in src, too, which may run without the fixtures in tests: PyG is imported before warnings are errors."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own deprecation warnings while it is imported
    import torch_geometric.datasets  # noqa: F401
