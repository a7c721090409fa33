"""Has Spark know on which line of the user's function each expression of a plan was written, so that an error of the data can tell it.

PySpark has this as a setting of the whole session (`dataFrameDebugging`), which costs calls into the JVM for each expression of ours too, in
each batch. Here it is on while a user's function builds its plan, which it does once for a query.

Who calls it: `outputs.results`. Not promised: a line where PySpark has no such switch any more; then errors name the function only.
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
    """Inside, expressions are made with their lines. Queries build their plans on threads of their own: off again with the last of them."""
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
