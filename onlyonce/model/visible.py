"""Shows the control characters of a text, which a terminal would obey: records, file names and errors may have any. Pure."""

from __future__ import annotations

_SHOWN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_SHOWN |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""The second kind turns the direction of what follows it, so that a name reads as another one."""


def visible(text: str) -> str:
    r"""Return the text with C0, C1 and DEL as `\x1b`, and with changes of direction as `\u202e`. Line breaks and tabs stay."""
    return text.translate(_SHOWN)
