"""Texts that come from files, as they are shown to people: on a terminal, in a picture, on a page."""

from __future__ import annotations

import re

__all__ = ["shown", "shown_lines"]

# Control characters (with them escape sequences that a terminal obeys, and line breaks), marks that turn the direction
# of writing, halves of letters, and what no XML file may hold.
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def shown(value: object) -> str:
    r"""The text of `value` on one line; what would act, not be seen, is written as in Python.

    >>> print(shown("a\x1b[31m\nb"))
    a\x1b[31m\nb
    """
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


def shown_lines(text: str) -> str:
    """A text of several lines, each of them as `shown`."""
    return "\n".join(map(shown, text.split("\n")))
