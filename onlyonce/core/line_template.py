"""Recognise lines for the fast JSON path by regular expressions: flat JSON objects of declared keys. Pure.

`exact` matches lines that Arrow reads as the conversion table does (`core/conversions.py`). It exists if all
declared types have an exact form. RE2, which runs it, needs time in proportion to the line for any expression.
`layout` is the common form of the lines of one program: a block of them is read without an expression for each line.
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
"""By type the values that all parsers read in the same way: in range whatever the digits, in one notation. `seconds`
since 1970 are the other form of a timestamp."""


def exact(kinds: Mapping[str, str]) -> str:
    """Return an RE2 expression for lines that are valid as they stand.

    `kinds` has the type of each column; all types are in EXACT. A matching line is one JSON object whose keys are
    columns and whose values are of their types, or null. A line with leading or trailing blanks does not match, so
    `line_values.decoded` reads it. The expression can't see a key that occurs twice, or a day that its month does not
    have.
    """
    pair = "|".join(f'"{re.escape(name)}" *: *(?:{EXACT[kind]}|null)' for name, kind in kinds.items())
    return rf"\A\{{ *(?:{pair})(?: *, *(?:{pair}))* *\}}\z"


UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""The RE2 expression, over bytes, for characters of Unicode in UTF-8."""


@dataclass(frozen=True)
class Layout:
    """The text of a line around its values: `fixed` before each value and after the last one.

    `values` are their columns and kinds (as in EXACT). A line matches `exact` if it has all of `fixed` in this order
    from begin to end, and a value of its kind (`inner`) at each gap. It has no other quotation mark. No string may have
    a backslash or a control character.
    """

    fixed: tuple[bytes, ...]
    values: tuple[tuple[str, str], ...]


_PAIR = re.compile(r' *"([^"]*)" *: *("[^"]*"|[^", {}]+) *')
SECONDS = {"timestamp": "seconds"}
"""The other form of a kind: a number, not a string."""


def layout(line: str, kinds: Mapping[str, str]) -> Layout | None:
    """Return the layout of a line that is one flat object of different columns.

    None if the line is not such an object, or has no value. A null belongs to `fixed`: its column has no value.
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
    """Return an RE2 expression for a value without its quotation marks, as it stands between the fixed parts."""
    return rf"\A(?:{EXACT[kind].strip(chr(34))})\z"
