"""Spark's Python daemon with the libraries of our tasks read before it makes a worker: each worker is a fork of it, and begins with them.

Without it each new worker reads them again, a second of a processor: after the cold start of a session, and after each task that
failed or was cancelled, whose worker Spark ends.

Who calls it: Spark, where `onlyonce.spark_options` names it; that is on one machine, where the executors' Python is the driver's own.
Errors: none of its own; a library that is missing is told by the task that needs it. Not promised: what a user's function imports.
"""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress

from pyspark.daemon import manager

LIBRARIES = ("numpy", "pyarrow.compute", "pyarrow.parquet", "xxhash", "psycopg2", "sqlalchemy", "structlog", "tenacity")
"""None of them starts a thread before it is used: a fork has only the thread that forks."""


def read_libraries() -> None:
    """Import them, and leave them out of all later collections of garbage."""
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    read_libraries()
    manager()
