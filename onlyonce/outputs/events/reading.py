"""What an output's function makes of `events`: of the rows as a stream, or of the windows that close with a batch.

Who calls it: `outputs`, `finishing`. Errors: those of the function, and Refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.outputs.triggers import Bounds
from onlyonce.outputs import results
from onlyonce.outputs.events import first_reading, restart
from onlyonce.outputs.events.first_reading import Part
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.windows import raw_windows, watermark, windowing
from onlyonce.receive import events


def stream(
    context: RunContext, query: Query, root: Output, start: int, files: int = events.UNSPLIT, part: Part | None = None
) -> DataFrame:
    """An output's rows, made of what `events` has from a version on, or of a part of a first reading that is cut."""
    read = first_reading.rows(context, part, files) if part else restart.read_from(context, start, files)
    if root.gets_whole_windows:  # its batches read the windows that they write from `events`
        return read

    def by(until: windowing.Until) -> tuple[DataFrame, DataFrame]:
        rows = windowing.in_stream(read, root, until)
        if query.start_from:
            rows = restart.without_final(context, query, root, rows, restart.read_before(context, query, start))
        return rows, restart.not_written(context, query, root, results.applied(context, root, rows))

    # A join or a processor gives rows at any time, not only at ends of windows.
    return by(windowing.closed_until)[1] if root.gives_as_it_comes else watermark.chosen(root.window, by)


def closing(
    context: RunContext, query: Query, root: Output, versions: Versions, batch_id: int, also: Sequence[Bounds] = ()
) -> DataFrame:
    """The rows of the windows that close with this batch, and of others that are open.

    The first of a new life has all that no earlier one has written.
    """
    anew = bool(query.start_from) and batch_id == 0
    after = None if anew else versions.after
    ends = raw_windows.closing_ends(context, root, after, versions)
    rows = raw_windows.closed_by(context, query, root, ends, versions)
    if also:
        rows = rows.unionByName(raw_windows.of(context, root, list(also), versions.upto), allowMissingColumns=True)
    if query.start_from:
        rows = restart.without_final(context, query, root, rows, after)
    made = results.applied(context, root, rows)
    # An aggregate without a group gives a row even for no records. Where no window closes there is none to give a row
    # for.
    return made if also or raw_windows.closes_any(root, ends) else made.limit(0)
