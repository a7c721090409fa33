"""Recognises plain lines by regular expressions. A plain line is a flat JSON object of declared keys, with nothing unusual in it.

`exact` matches lines that Arrow may read instead of Spark's parser; it exists where all declared types have an exact form. `pattern`
matches lines that Spark's parser reads and that need no further check. Java and Python read `pattern` alike. Its repetitions are
possessive, so matching takes time in proportion to the line and no stack. RE2, which runs `exact`, does so with any expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

TEXT = r'"[^"\\]*+"'
"""No escape. Kept to a class without ranges, which costs Java less than half."""
SCALAR = rf"(?:{TEXT}|[-+.0-9eE]++|true|false|null)"
"""What else is wrong with a number Spark's parser says."""
TIME = r'(?:"[0-9]{4}-[^"\\]*+"|-?[0-9]{1,12}(?:\.[0-9]*+)?+|null)'
"""A date with what follows it, or seconds since 1970: never a mere time of day, never too large."""


def pattern(columns: Iterable[str], event_time: str) -> str:
    """The expression that finds a plain line. Called by `onlyonce/sources/parse/parse.py`.

    A line that it finds is one JSON object or none at all (commas are not looked at, Spark's parser does); it has no
    keys but these, no escapes, and its event time is a date or a number. One that it does not find may
    still be right: nested values, escapes or white space elsewhere.
    """
    others = "|".join(re.escape(name) for name in columns if name != event_time) or "(?!)"
    pair = rf'"(?:(?:{others})" *+: *+{SCALAR}|{re.escape(event_time)}" *+: *+{TIME})'
    return rf"^\{{ *+(?:{pair} *+,? *+)*+\}}(?![\s\S])"


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
"""By type the values that all parsers read alike: in range whatever the digits, in one notation. `seconds` since 1970 is the
other form of a timestamp."""


def exact(kinds: Mapping[str, str]) -> str:
    """The expression (RE2's, which takes time in proportion to the line) that finds a line which is right as it stands.

    `kinds` is the type of each column; all of them are in EXACT. A line that it finds is one JSON object whose keys are columns and whose values are
    of their types, or null. What it can't see: a key that is there twice, and a day that its month has not.
    """
    pair = "|".join(f'"{re.escape(name)}" *: *(?:{EXACT[kind]}|null)' for name, kind in kinds.items())
    return rf"\A\{{ *(?:{pair})(?: *, *(?:{pair}))* *\}}\z"
