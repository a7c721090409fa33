"""Decode files of the encodings in which Windows writes text, one byte for each character. Pure.

The lower half of such an encoding is ASCII. So the bytes of line feeds, quotes and delimiters have no other meaning,
and a file is cut into records before it is decoded. UTF-16 and the encodings of East Asia lack this property.
"""

from __future__ import annotations

import codecs
from functools import cache

UTF_8 = "utf-8"
WINDOWS = ("windows-874", *(f"windows-{page}" for page in range(1250, 1259)))
ENCODINGS = (UTF_8, *WINDOWS)
MARKS = (
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""The byte order marks, and what has them."""


@cache
def characters(encoding: str) -> str:
    """Return the characters of the 256 bytes in an encoding of WINDOWS.

    A byte that the encoding does not define has the character of its number, which no other byte has.
    """
    return "".join(character or chr(byte) for byte, character in enumerate(_defined(encoding)))


@cache
def undefined(encoding: str) -> bytes:
    """Return the bytes that are not characters of an encoding of WINDOWS."""
    return bytes(byte for byte, character in enumerate(_defined(encoding)) if not character)


def _defined(encoding: str) -> list[str]:
    """Return the character of each of the 256 bytes; empty if the encoding does not define it."""
    codec = encoding.replace("windows-", "cp")
    return [bytes([byte]).decode(codec, "ignore") for byte in range(256)]


def decode(content: bytes, encoding: str) -> str:
    """Return bytes in an encoding of WINDOWS as a string. It never fails: see `characters`."""
    return codecs.charmap_decode(content, "strict", characters(encoding))[0]


def not_encoded(encoding: str, byte: int) -> str:
    """Return the reason for a line with a byte that its encoding does not define."""
    return f"the line is not {encoding}: it has the byte 0x{byte:02X}, which is no character there"


def other_mark(beginning: bytes, encoding: str) -> str | None:
    """Return the encoding that a file's byte order mark names, if a source of this encoding can't read it; else
    None."""
    found = next((name for mark, name in MARKS if beginning.startswith(mark)), None)
    return None if encoding == UTF_8 and found == "UTF-8" else found
