"""Shows the characters of a text that a terminal would obey or that can't be printed: records, file names and errors
may have any.

Pure.
"""

from __future__ import annotations

import re

HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL and C1; line separators; changes of direction, by which a name reads as another one; halves of surrogate
pairs. Java reads the pattern as Python does."""
_LAYOUT = "\n\t"


def visible(text: str) -> str:
    r"""Return the text with hidden characters as `\x1b` or `\u202e`. Line breaks and tabs stay."""
    return HIDDEN.sub(lambda one: one[0] if one[0] in _LAYOUT else _written(one), text)


def in_line(text: str) -> str:
    """Return the text with all hidden characters written out, line breaks and tabs too."""
    return HIDDEN.sub(_written, text)


def in_json(text: str) -> str:
    """Return JSON with the escapes of JSON for its hidden characters.

    Line breaks stay: within strings JSON escapes them itself.
    """
    return HIDDEN.sub(lambda one: one[0] if one[0] in _LAYOUT else f"\\u{ord(one[0]):04x}", text)


def _written(one: re.Match[str]) -> str:
    code = ord(one[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
