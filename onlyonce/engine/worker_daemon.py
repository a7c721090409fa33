"""Spark's Python daemon, which imports the libraries of our tasks before it forks a worker.

Each worker is a fork, so it has them. Otherwise each new worker imports them again, which takes a second of a
processor. Spark makes new workers after the cold start of a session, and after each task that failed or was cancelled.

Spark starts this daemon if `onlyonce.engine.options` names it: on one machine, where the executors' Python is the
driver's own. A missing library is reported by the task that needs it. Libraries that a user's function imports are not
included.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

from pyspark.daemon import manager

from onlyonce.engine import callers, worker

LIBRARIES = ("numpy", "pyarrow.compute", "pyarrow.parquet", "xxhash", "psycopg2", "sqlalchemy", "structlog", "tenacity")
"""None of these modules starts a thread before it is used: a fork has only the thread that forks."""


def read_libraries() -> None:
    """Import the libraries, and exclude them from all later collections of garbage."""
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    worker.leave_out_what_is_here()


if __name__ == "__main__":
    read_libraries()
    callers.guard_daemon()
    manager()
