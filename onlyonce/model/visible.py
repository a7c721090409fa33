"""Shows the control characters of a text, which a terminal would obey: records, file names and errors may have any. Pure."""

from __future__ import annotations

_SHOWN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    r"""Return the text with C0, C1 and DEL as `\x1b`. Line breaks and tabs stay."""
    return text.translate(_SHOWN)
