"""Number the panes of a window in a column of the rows (`Output.pane_column`).

The log has the number of each window's last pane, so a batch numbers its panes before it writes them: a retried, killed
or replayed batch writes the same numbers. Every sink gets the column with the rows, and knows nothing of panes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output
from onlyonce.commitlog.backfills import NUMBERED
from onlyonce.core import triggers
from onlyonce.core.batch import to_time
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import OO_WINDOW, WINDOW_END, WINDOW_START
from onlyonce.core.triggers import FIRST_PANE, LastPane
from onlyonce.core.windows import Bounds, Micros

NUMBER = "oo_pane"
KNOWN = f"{OO_WINDOW} struct<start: timestamp, end: timestamp>, {NUMBER} int"


def with_first(output: Output, rows: DataFrame) -> DataFrame:
    """Return the result of an output's function with the column, as if each pane was the first of its window.

    So the sink is checked with all columns. `numbered` then corrects the windows that have panes already.
    """
    if output.pane_column is None:
        return rows
    return rows.withColumn(output.pane_column, F.lit(FIRST_PANE).cast("int"))


def numbered(output: Output, rows: DataFrame, last: Mapping[Bounds, LastPane]) -> DataFrame:
    """Return rows of `with_first` with the number of each window's next pane.

    last   the last panes of windows in the log
    """
    if output.pane_column is None:
        return rows
    later = [(window, number) for window, pane in last.items() if (number := triggers.next_pane(pane)) != FIRST_PANE]
    if not later:
        return rows
    known = [((to_time(start), to_time(end)), number) for (start, end), number in later]
    joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(known, KNOWN)), OO_WINDOW, "left")
    number = F.coalesce(F.col(NUMBER), F.lit(FIRST_PANE)).cast("int")
    return joined.withColumn(output.pane_column, number).drop(NUMBER)


def of_written(written: pa.Table, last: Mapping[Bounds, LastPane]) -> pa.Table:
    """Return what the log stores of panes that a batch has written: window, number, and the rows of all its panes.

    written   (window_start, window_end, rows) of each window: `batches.WRITTEN`
    """
    found = []
    for window, rows in rows_by_window(written).items():
        before = last.get(window)
        total = rows + (before.rows_of_all if before else 0)
        found.append([*window, triggers.next_pane(before), total])
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in NUMBERED]
    return pa.table(columns, NUMBERED.names).cast(NUMBERED)


def refuse_emptied(
    output: Output,
    last: Mapping[Bounds, LastPane],
    fired: Collection[Bounds],
    closed: Micros | None,
    written: Collection[Bounds],
) -> None:
    """Raise Refused if a pane has no rows and the pane before has some (`triggers.emptied`).

    closed   windows that end up to here close with this batch
    """
    gone = triggers.emptied(last, fired, closed, written)
    if not gone:
        return
    start, end = (to_time(time) for time in gone[0])
    more = f" (and for {len(gone) - 1} more)" if len(gone) > 1 else ""
    before = last[gone[0]]
    raise Refused(
        f"output {output.name}: {output.made_by} gives no row for the window [{start}, {end}){more}, and its pane "
        f"{before.number} has rows ({before.rows})",
        data="nothing of the batch was written. A pane without rows can't be in a table: a reader would take the rows "
        "of the pane before for the window's result",
        hint="let the function give a row for each window that has records, such as one with a count of 0; or declare "
        "another output that writes files, which have empty panes",
    )


def rows_by_window(written: pa.Table) -> dict[Bounds, int]:
    """Return how many rows were written of each window (`batches.WRITTEN`)."""
    starts, ends = (written.column(name).cast(pa.int64()).to_pylist() for name in (WINDOW_START, WINDOW_END))
    return dict(zip(zip(starts, ends, strict=True), written.column("rows").to_pylist(), strict=True))
