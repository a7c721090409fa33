"""Help a notebook to read a target into memory: the reader's database, pandas, and one refusal.

pandas is imported when it is used. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from onlyonce import settings
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place, suffix_of

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

T = TypeVar("T")
NO_ROWS = "nothing was read; this only reads"
NAME = "onlyonce-notebook"
"""The name of the notebook's sessions in PostgreSQL."""
ALL = 1 << 31
"""For a query that takes a limit: more rows than a notebook can hold."""


def place_of(pipeline: Pipeline, output: Output, instance: str) -> Place:
    """Return the place to which an instance writes an output."""
    return Place(target(pipeline, output)).of_run(suffix_of(instance))


def not_yet(pipeline: Pipeline, output: Output, instance: str, place: object) -> Refused:
    """Return the refusal of an output without a table."""
    return Refused(
        f"output {output.name} of {instance} has no rows yet: {place} does not exist",
        data=NO_ROWS,
        hint=f"a window is written when it closes: onlyonce run {pipeline.name}",
    )


def as_frame(rows: list[Any], columns: list[str] | None = None) -> pd.DataFrame:
    """Return rows as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def reader_url() -> str:
    """Return the URL with which the log is read. Raise Refused if there is no platform."""
    try:
        return settings.reader_url()
    except FileNotFoundError as error:
        raise Refused(
            f"there is no platform under {settings.home()} yet",
            data=NO_ROWS,
            hint="`onlyonce up --no-airflow` makes it (with Airflow: `onlyonce up`); ONLYONCE_HOME names one elsewhere",
        ) from error


def read(url: str, work: Callable[[Connection], T]) -> T:
    """Return what `work` reads in one transaction."""
    from onlyonce.database.connect import Database, transaction  # a notebook loads it at the first call

    with transaction(Database(url, NAME)) as connection:
        return work(connection)
