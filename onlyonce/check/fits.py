"""Checks that the rows of a function have the keys of their sink. Pure.

Who calls it: `onlyonce.check.look`. Errors: Refused, at the line of the declaration. Not promised: what a sink itself
checks at the start of a run, such as that values can be added up.
"""

from __future__ import annotations

import difflib

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import Refused

NOTHING = "nothing was read or written"


def check_keys(output: Output, columns: list[str]) -> None:
    """Raise Refused for a key, or a column to order by, that the rows don't have."""
    named = [*output.sink.keys, *(getattr(output.sink, "order_by", None) or ())]
    for key in named:
        if key not in columns:
            close = difflib.get_close_matches(key, columns, n=1)
            guess = f"did you mean {close[0]!r}? " if close else ""
            raise Refused(
                f"{declared_at(output.sink) or declared_at(output)}output {output.name}: the key {key!r} is not a "
                f"column of what {output.made_by} gives",
                data=NOTHING,
                hint=f"{guess}There is: {', '.join(columns)}",
            )
