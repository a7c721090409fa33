"""The first records that came too late for an output.

They are read from the table `events`, as `onlyonce late` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onlyonce import settings
from onlyonce.airflow.page import sight
from onlyonce.airflow.page.search import beyond_reach
from onlyonce.airflow.page.sight import Row
from onlyonce.declare import loading as declarations
from onlyonce.model.errors import OnlyonceError
from onlyonce.records import left_out
from onlyonce.storage import log_entries, opening

SHOWN = 20
MOST_RECORDS = 2_000_000
"""Of one table, how many the page judges: two seconds or so."""


@dataclass(frozen=True)
class Late:
    """How many (record, window) pairs there are, the first of them, and why there are none to be shown."""

    total: int = 0
    rows: list[Row] = field(default_factory=list)
    remark: str | None = None


NOT_PERMITTED = Late(remark=sight.NOT_PERMITTED)


def of_output(name: str, instance: str, output: str) -> Late:
    """What `events` knows of it; by the declaration of pipeline `name` as it is now.

    Called by the page. Raises nothing of its own.
    """
    path = settings.data_location(instance) / "events"
    if not log_entries.any_in(path):
        return Late(remark="the table events can't be seen from here")
    if too_many := beyond_reach(instance, opening.table(path), MOST_RECORDS):
        return Late(remark=too_many)
    try:
        pipeline = declarations.one(name)
    except OnlyonceError as error:
        return Late(remark=f"{error.what}; next: {error.hint}")
    total, rows = left_out.late(pipeline, instance, SHOWN, output)
    return Late(total, [row | {"id": {column: row[column] for column in pipeline.record_id}} for row in rows])
