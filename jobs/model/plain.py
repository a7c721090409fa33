"""Plain lines: a flat JSON object of declared keys, without anything that needs a second look. As one regular expression.

Java's and Python's regular expressions read it alike. All repetitions are possessive, so that it takes time in
proportion to the line and no stack, whatever the line is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TEXT = r'"[^"\\]*+"'
"""No escape. Kept to a class without ranges, which costs Java less than half."""
SCALAR = rf"(?:{TEXT}|[-+.0-9eE]++|true|false|null)"
"""What else is wrong with a number Spark's parser says."""
TIME = r'(?:"[0-9]{4}-[^"\\]*+"|-?[0-9]{1,12}(?:\.[0-9]*+)?+|null)'
"""A date with what follows it, or seconds since 1970: never a mere time of day, never too large."""


def pattern(columns: Iterable[str], event_time: str) -> str:
    """The expression that finds a plain line. Called by `jobs/spark/parse.py`.

    A line that it finds is one JSON object or none at all (commas are not looked at, Spark's parser does); it has no
    keys but these, no escapes, and its event time is a date or a number. One that it does not find may
    still be right: nested values, escapes or white space elsewhere.
    """
    others = "|".join(re.escape(name) for name in columns if name != event_time) or "(?!)"
    pair = rf'"(?:(?:{others})" *+: *+{SCALAR}|{re.escape(event_time)}" *+: *+{TIME})'
    return rf"^\{{ *+(?:{pair} *+,? *+)*+\}}(?![\s\S])"
