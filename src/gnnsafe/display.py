"""Texts that come from files, as they are shown to people: on a terminal, in a picture, on a page."""

from __future__ import annotations

import codecs
import re

__all__ = ["FALLBACK", "shown", "shown_lines"]

# Control characters (with them escape sequences that a terminal obeys, and line breaks), marks that turn the direction
# of writing, halves of letters, and what no XML file may hold.
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

FALLBACK = "gnnsafe"
"""The name of an error handler for a terminal that has not all letters: codecs, `open`, `TextIOWrapper.reconfigure`."""

SIMILAR = {
    "±": "+/-", "…": "...", "–": "-", "—": "-", "−": "-", "×": "x", "≥": ">=", "≤": "<=", "→": "->", "·": ".", "█": "#",
    "▒": "%", "⁰": "^0", "¹": "^1", "²": "^2", "³": "^3", "▲": "^", "▼": "v", "↑": "^", "↓": "v", "½": "1/2",
    **{bar: str(height) for height, bar in enumerate("▁▂▃▄▅▆▇", start=1)},
}  # fmt: skip


def shown(value: object) -> str:
    r"""The text of `value` on one line; what would act, not be seen, is written as in Python.

    >>> print(shown("a\x1b[31m\nb"))
    a\x1b[31m\nb
    """
    return UNSEEN.sub(_escaped, str(value))


def shown_lines(text: str) -> str:
    """A text of several lines, each of them as `shown`."""
    return "\n".join(map(shown, text.split("\n")))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _similar(error: UnicodeError) -> tuple[str, int]:
    """gnnsafe's signs become similar ones of ASCII; all else, such as others' names, an escape that tells it apart."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(SIMILAR.get(letter, letter.encode("unicode_escape").decode()) for letter in letters), error.end


codecs.register_error(FALLBACK, _similar)
