"""What a method learns is no argument of its constructor: the reference's signatures leave such fields out."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["WithoutFitted"]


class WithoutFitted(griffe.Extension):
    """Fields `name_: Tensor = fitted()` of a dataclass are not set by its caller."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Look at every class, once constructors of dataclasses are known."""
        for member in list(pkg.members.values()):
            if member.is_alias:
                continue
            if member.is_module:
                self.on_package(pkg=member)
            elif member.is_class and "__init__" in member.members:
                constructor = member.members["__init__"]
                learnt = [one for one in constructor.parameters if str(one.default).startswith("fitted(")]
                for one in learnt:
                    del constructor.parameters[one.name]
