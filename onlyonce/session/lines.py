"""Tells Spark the line of the user's function for each expression of a plan, so that an error of the data can name that
line.

PySpark has this as a setting of the whole session (`dataFrameDebugging`). That would cost calls into the JVM for each
of our own expressions too, in each batch. Here it is on only while a user's function builds its plan, once for a query.

Who calls it: `outputs.results`. Not promised: a line, if a later PySpark has no such switch; then errors name only the
function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pyspark.errors import utils

_SWITCH = "_enable_debugging_cache"
_turn = Lock()
_inside = 0


@contextmanager
def known() -> Iterator[None]:
    """Inside, expressions are made with their lines.

    Queries build their plans on threads of their own: off again with the last of them.
    """
    _switched(+1)
    try:
        yield
    finally:
        _switched(-1)


def _switched(by: int) -> None:
    global _inside
    with _turn:
        _inside += by
        # None: PySpark asks the session's setting again.
        setattr(utils, _SWITCH, True if _inside else None)
