"""A graph that is kept and changes: its journal, and what a detector says about the nodes that a change affects."""

from __future__ import annotations

from gnnsafe.evolving.changes import Changes
from gnnsafe.evolving.listing import Query, Row, Totals
from gnnsafe.evolving.scored import Change, ScoredGraph

__all__ = ["Change", "Changes", "Query", "Row", "ScoredGraph", "Totals"]
