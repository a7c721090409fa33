"""What happens once in the life of one of Spark's Python workers.

Who calls it: the tasks of receive, by `arrived` and `line_reader`. Not promised: anything for a worker that sees none of them.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Leave what is there now out of all later collections of garbage.

    After each task pyspark's daemon has a worker collect all garbage (`pyspark/daemon.py`), and that looks at every object: 70 ms of a
    processor, for the modules of Arrow, SQLAlchemy and Spark, of which none ever goes.
    """
    gc.collect()
    gc.freeze()
