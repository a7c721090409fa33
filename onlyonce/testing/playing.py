"""Outputs without a platform: batch after batch of kept records, between two frontiers, to the rows of each output.

The frontier, windows, lateness and the user's function are the product's (`model.frontier`, `outputs.windowing`,
`outputs.results`), over a bounded read of the records so far. In place of Spark's state: of an output that writes a
window when it closes, the rows of the windows whose end lies between what was closed before a batch and what is after
it, which is what Spark's watermark gives. Who calls it: `running` and `holding`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.declare.outputs.taken_back import what_to_do
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.batch import to_micros, to_time
from onlyonce.model.frontier import Frontier, closed_until
from onlyonce.model.outputs import triggers
from onlyonce.model.outputs.triggers import Bounds, Held, Trigger
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_FRONTIER, OO_SYSTEM_TIME, OO_WINDOW
from onlyonce.model.windows import Session, micros
from onlyonce.outputs import results
from onlyonce.outputs.function import rejecting
from onlyonce.outputs.windows import windowing
from onlyonce.receive import event_files
from onlyonce.records import left_out
from onlyonce.testing import shape
from onlyonce.testing.rejected import Rejected
from onlyonce.testing.result import Pane
from onlyonce.testing.taking_in import Taken
from onlyonce.testing.target import Target, window_of

Row = dict[str, Any]
Window = tuple[Any, ...]


@dataclass
class Play:
    """A pipeline's outputs as they stand after some batches. `comes`: of each root, what `shape.as_they_come` says."""

    spark: SparkSession
    pipeline: Pipeline
    comes: dict[str, bool]
    lookups: results.Frames = field(default_factory=dict)
    frontier: Frontier = field(default_factory=Frontier)
    targets: dict[str, Target] = field(init=False)
    late: dict[str, list[Row]] = field(init=False)
    panes: dict[str, list[Pane]] = field(init=False)
    rejected: dict[str, Rejected] = field(init=False)
    _step: int = -1
    _last: datetime | None = None
    _events: list[DataFrame] = field(default_factory=list)
    _early: dict[str, list[Row]] = field(default_factory=dict)
    _held: dict[str, dict[Bounds, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.targets = {output.name: Target(output) for output in self.pipeline.outputs}
        self.late = {output.name: [] for output in self.pipeline.outputs}
        self.panes = {output.name: [] for output in self.pipeline.outputs}
        self.rejected = {root.name: Rejected(self.pipeline, root) for root in self.pipeline.roots()}

    def batch(self, taken: Taken) -> None:
        """Records that receive has kept."""
        before, self.frontier = self.frontier, self.frontier.after_batch(taken.largest)
        came = self._stamped(taken, before) if taken.kept.num_rows else None
        if came is not None:
            self._events.append(came)
        self._step, self._last = self._step + 1, taken.system_time
        for root in self.pipeline.roots():
            self._note_late(root, taken, before)
            if came is not None:
                self.rejected[root.name].met(came)
            self._write(root, before, came)

    def close(self, silent_at: datetime | None = None) -> None:
        """The input has ended; or it is silent at this time, for long enough or not."""
        before = self.frontier
        if silent_at is None:
            self.frontier = before.declared_ended()
        elif (
            self.pipeline.idle_after is None or self._last is None or silent_at - self._last < self.pipeline.idle_after
        ):
            return
        else:
            self.frontier = before.fallen_silent(to_micros(silent_at) or 0, micros(self.pipeline.idle_after))
        self._step += 1
        for root in self.pipeline.roots():
            self._write(root, before, None)

    def fold_late(self) -> None:
        """What the end of a run does with the late rows of outputs that are declared so."""
        for root in self.pipeline.roots():
            late = {window_of(row) for row in self.late[root.name]}
            if root.late == "recompute" and late:
                self.backfill(root, None if isinstance(root.window, Session) else late)

    def backfill(self, root: Output, only: set[Window] | None = None) -> None:
        """Compute closed windows of an output anew, with their late rows.

        Raises Refused where a sink can't take them back.
        """
        assert root.window is not None
        chain = {output.name: what_to_do(output) for output in (root, *self.pipeline.made_from(root))}
        closed = self._closed(root, self.frontier)
        if closed is None or not self._events:
            return
        rows = results.of_pipeline(self.pipeline, root, windowing.assign(self._all(), root.window), self.lookups)
        rows = rows.filter(windowing.after_merge(F.unix_micros(f"{OO_WINDOW}.end") <= F.lit(closed)))
        for output, made in self._chain(root, rows):
            if chain[output.name] == "skip":
                continue
            there = [row for row in _plain(made) if only is None or window_of(row) in only]
            if chain[output.name] == "resend":
                self.targets[output.name].write(there)
            else:
                # A session may have merged with others, so all that are closed give way.
                gone = (
                    {(pane.window_start, pane.window_end) for pane in self.panes[output.name]} if only is None else only
                )
                self.targets[output.name].replace(there, gone)
            self._note(output, there, backfilled=True)
        self.rejected[root.name].again(self._all(), closed, only)

    def _write(self, root: Output, before: Frontier, came: DataFrame | None) -> None:
        rows = self._written(root, before, came)
        if rows is None:
            return
        for output, made in self._chain(root, rows):
            there = _plain(made)
            if root.panes == "early":
                there = self._changed(root, there)
            self.targets[output.name].write(there)
            self._note(output, there)

    def _written(self, root: Output, before: Frontier, came: DataFrame | None) -> DataFrame | None:
        """The rows of the function that a batch writes; None where it has nothing to look at."""
        if root.trigger is not None:
            return self._fired(root, root.trigger, before, came)
        if root.panes == "early":
            return None if came is None else self._of(root, self._all())
        if self.comes[root.name]:
            return None if came is None else self._of(root, came)
        was, now = self._closed(root, before), self._closed(root, self.frontier)
        if now is None or now == was or not self._events:
            return None
        end = F.unix_micros(f"{OO_WINDOW}.end")
        closing = end <= F.lit(now) if was is None else (end <= F.lit(now)) & (end > F.lit(was))
        return self._of(root, self._all()).filter(windowing.after_merge(closing))

    def _fired(self, root: Output, trigger: Trigger, before: Frontier, came: DataFrame | None) -> DataFrame | None:
        """The windows that close with a batch, and those of which it writes a pane."""
        held, closed = self._held.setdefault(root.name, {}), self._closed(root, self.frontier)
        met = {} if came is None else self._met(root, came)
        due, after = triggers.decided(trigger, held, met, closed, to_micros(self._last) or 0)
        for window, left in after.items():
            held.pop(window, None)
            if left is not None:
                held[window] = left
        was, end = self._closed(root, before), F.unix_micros(f"{OO_WINDOW}.end")
        written = (
            F.lit(False) if closed is None else (end <= F.lit(closed)) & (end > F.lit(was if was is not None else -1))
        )
        for start, stop in due:
            written = written | ((F.unix_micros(f"{OO_WINDOW}.start") == start) & (end == stop))
        return self._of(root, self._all()).filter(written) if self._events else None

    def _met(self, root: Output, came: DataFrame) -> dict[Bounds, int]:
        assert root.window is not None
        rows = windowing.counted(rejecting.accepted(self.pipeline, root, came), root.window, root.lateness)
        found = rows.withColumns(windowing.bounds()).select("window_start", "window_end", "in_time").collect()
        return {(row.window_start, row.window_end): row.in_time for row in found}

    def _of(self, root: Output, rows: DataFrame) -> DataFrame:
        """The function over the rows in time, each with its window."""
        if root.window is None:
            return results.of_pipeline(self.pipeline, root, rows, self.lookups)
        in_time = ~windowing.is_late(root.window, root.lateness)
        if isinstance(root.window, Session):
            placed = windowing.assign(rows.filter(in_time), root.window)
        else:
            placed = windowing.assign(rows, root.window).filter(in_time)
        return results.of_pipeline(self.pipeline, root, placed, self.lookups)

    def _chain(self, root: Output, rows: DataFrame) -> list[tuple[Output, DataFrame]]:
        made_from = self.pipeline.made_from(root)
        kept = rows.persist() if made_from else rows
        return [(output, results.rows_of(output, kept, self.lookups)) for output in (root, *made_from)]

    def _changed(self, root: Output, rows: list[Row]) -> list[Row]:
        before = Counter(map(repr, self._early.get(root.name, [])))
        self._early[root.name] = rows
        return [row for row in rows if not before[repr(row)]]

    def _note(self, output: Output, rows: list[Row], *, backfilled: bool = False) -> None:
        closed = self._closed(self._root(output), self.frontier)
        last = {(pane.window_start, pane.window_end): pane.generation for pane in self.panes[output.name]}
        for window, count in Counter(map(window_of, rows)).items():
            if window[0] is not None:
                final = closed is not None and (to_micros(window[1]) or 0) <= closed
                generation = last.get(window, 0) + 1 if backfilled else 0
                self.panes[output.name].append(Pane(window[0], window[1], self._step, generation, count, final))

    def _note_late(self, root: Output, taken: Taken, before: Frontier) -> None:
        if root.window is None or not taken.kept.num_rows:
            return
        known = {name: to_time(value) for name, value in asdict(before).items()}
        part = taken.kept.combine_chunks().to_batches()[0]
        frontiers = pa.repeat(pa.scalar(known, event_files.FRONTIER), part.num_rows)
        judged = pa.RecordBatch.from_arrays([part.column(OO_EVENT_TIME), frontiers], [OO_EVENT_TIME, OO_FRONTIER])
        for starts, ends, positions in left_out.late_pairs(judged, root):
            for at in positions.tolist():
                window = (None, None) if isinstance(root.window, Session) else (starts[at], ends[at])
                record = part.slice(at, 1).select(self.pipeline.columns()).to_pylist()[0]
                record = {name: _in_utc(value) for name, value in record.items()}
                bounds = [None if time is None else to_time(int(time)) for time in window]
                self.late[root.name].append({"window_start": bounds[0], "window_end": bounds[1], **record})

    def _stamped(self, taken: Taken, known: Frontier) -> DataFrame:
        parts = [F.lit(to_time(value)).cast("timestamp").alias(name) for name, value in asdict(known).items()]
        more = {OO_SYSTEM_TIME: _at(taken.system_time), OO_FRONTIER: F.struct(*parts)}
        return self.spark.createDataFrame(taken.kept).withColumns(more)

    def _all(self) -> DataFrame:
        return reduce(DataFrame.unionByName, self._events)

    def _closed(self, root: Output, frontier: Frontier) -> int | None:
        return None if root.window is None else closed_until(frontier, root.window, micros(root.lateness))

    def _root(self, output: Output) -> Output:
        return self.pipeline.root_of(output)


def shapes(spark: SparkSession, pipeline: Pipeline, lookups: results.Frames = results.NO_LOOKUPS) -> dict[str, bool]:
    """Of each root, whether its rows are written as they come. Raises Refused for a function that can't be a stream."""
    return {root.name: shape.as_they_come(spark, pipeline, root, lookups) for root in pipeline.roots()}


def _plain(rows: DataFrame) -> list[Row]:
    found = results.flat(rows).toArrow().to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in found]


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _at(time: datetime) -> Column:
    return F.lit(time).cast("timestamp")
