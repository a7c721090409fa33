"""The pipelines that DAG files are made of. A file of ONLYONCE_PIPELINES that can't be loaded takes no other with it."""

from __future__ import annotations

from contextlib import suppress

from onlyonce import settings
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.errors import Refused


def loadable() -> list[Pipeline]:
    """The pipelines of every file that can be loaded; of two with one name the first. No errors.

    Called by `dags/stream.py` and `dags/backfill.py`; `dags/check_declarations.py` tells what is wrong with the rest.
    """
    found: dict[str, Pipeline] = {}
    for path in settings.pipeline_files():
        with suppress(Refused):
            found = declarations.load([path]) | found
    return list(found.values())
