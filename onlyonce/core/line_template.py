"""Recognises plain lines by regular expressions.

A plain line is a flat JSON object of declared keys, with nothing unusual in it.

`exact` matches lines that Arrow reads as the conversion table does (`onlyonce/core/conversions.py`). It exists if all declared
types have an exact form. RE2, which runs it, takes time in proportion to the line with any expression. `layout` is what
lines have alike that one program has written: with it a block of them is read without an expression for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_DATE = "[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"
EXACT = {
    "string": r'"[^"\\\x00-\x1f]*"',
    "boolean": "true|false",
    "tinyint": "-?(?:0|[1-9][0-9]?)",
    "smallint": "-?(?:0|[1-9][0-9]{0,3})",
    "int": "-?(?:0|[1-9][0-9]{0,8})",
    "bigint": "-?(?:0|[1-9][0-9]{0,17})",
    # As an integer -0 is 0 to Spark, and not to Arrow.
    "double": r"0|-?[1-9][0-9]{0,14}|-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,9}",
    "date": f'"{_DATE}"',
    "timestamp": f'"{_DATE}[T ]{_CLOCK}{_ZONE}"',
    "seconds": "-?(?:0|[1-9][0-9]{0,10})",
}
"""By type the values that all parsers read alike: in range whatever the digits, in one notation. `seconds` since 1970
is the other form of a timestamp."""


def exact(kinds: Mapping[str, str]) -> str:
    """The expression (RE2's, which takes time in proportion to the line) that finds a line which is right as it stands.

    `kinds` is the type of each column; all of them are in EXACT. A line that it finds is one JSON object whose keys are
    columns and whose values are of their types, or null. What it can't see: a key that is there twice, and a day that
    its month has not.
    """
    pair = "|".join(f'"{re.escape(name)}" *: *(?:{EXACT[kind]}|null)' for name, kind in kinds.items())
    return rf"\A\{{ *(?:{pair})(?: *, *(?:{pair}))* *\}}\z"


UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""The expression (RE2's, over bytes) for signs of Unicode in UTF-8."""


@dataclass(frozen=True)
class Layout:
    """The text of a line around its values: `fixed` before each and behind the last, `values` their columns and kinds
    (as in EXACT).

    A line that has all of `fixed`, in this order, from its begin to its end and with no quotation mark elsewhere is
    found by `exact` if each value between is of its kind (`inner`) and no text has a backslash or a control sign.
    """

    fixed: tuple[bytes, ...]
    values: tuple[tuple[str, str], ...]


_PAIR = re.compile(r' *"([^"]*)" *: *("[^"]*"|[^", {}]+) *')
SECONDS = {"timestamp": "seconds"}
"""The other form of a kind: a number and no text."""


def layout(line: str, kinds: Mapping[str, str]) -> Layout | None:
    """That of a line which is one flat object of different columns.

    None if it is not, or has no value. A null is fixed: its column has no value.
    """
    fixed, values, names = list[bytes](), list[tuple[str, str]](), set[str]()
    begin, at = 0, 1
    while pair := _PAIR.match(line, at):
        name, value = pair.groups()
        kind = kinds.get(name, "")
        kind = kind if value[0] == '"' else SECONDS.get(kind, kind)
        if not kind or name in names or (value != "null" and (value[0] == '"') != (EXACT[kind][0] == '"')):
            return None
        names.add(name)
        at = pair.end() + 1
        if value != "null":
            quote = value[0] == '"'
            fixed.append(line[begin : pair.start(2) + quote].encode())
            values.append((name, kind))
            begin = pair.end(2) - quote
        if line[at - 1 : at] != ",":
            break
    if not values or line[0] != "{" or line[at - 1 :] != "}":
        return None
    return Layout((*fixed, line[begin:].encode()), tuple(values))


def inner(kind: str) -> str:
    """The expression (RE2's) for a value without its quotation marks, as it stands between what is fixed."""
    return rf"\A(?:{EXACT[kind].strip(chr(34))})\z"
