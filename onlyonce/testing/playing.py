"""Play a pipeline's receive and outputs over a test's rows, without a platform and without starting a stream.

What the log, the catalog and Spark's state would know is kept in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce.api.outputs import what_to_do
from onlyonce.api.pipeline import Files, Output, Pipeline
from onlyonce.api.sinks import HISTORY, later_window_wins
from onlyonce.catalog.chunks import LookUps
from onlyonce.catalog.filters import Ids
from onlyonce.catalog.look_up import Seen
from onlyonce.core import triggers
from onlyonce.core.batch import bounds_in_micros, to_micros, to_time
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import Frontier, closed_until
from onlyonce.core.records import RecordPlace
from onlyonce.core.runs import first_line
from onlyonce.core.stored_names import (
    IS_CURRENT,
    OO_EVENT_TIME,
    OO_FRONTIER,
    OO_HIGH,
    OO_INGESTION_TIME,
    OO_LOW,
    OO_RAW,
    OO_REASON,
    OO_UNKNOWN,
    OO_WINDOW,
    VALID_FROM,
    VALID_TO,
    WINDOW_END,
    WINDOW_START,
)
from onlyonce.core.triggers import Held, LastPane, Trigger, is_due
from onlyonce.core.windows import Bounds, Session, micros
from onlyonce.engine import session
from onlyonce.outputs import at_close, function, open_sessions, pane_numbers, query, results, stateless, windows
from onlyonce.outputs.window_log import HOUR
from onlyonce.receive import events
from onlyonce.receive.unit import CANDIDATE, DUPLICATE, INVALID, KEPT, Records, fates_of
from onlyonce.records import left_out
from onlyonce.sources.lines import LINE_COLUMN
from onlyonce.sources.values import parse
from onlyonce.sources.values.parse import PLACED
from onlyonce.testing.given import Batch, Given, Pane, line_of


def as_they_come(
    spark: SparkSession, pipeline: Pipeline, root: Output, lookups: results.Frames = results.NO_LOOKUPS
) -> bool:
    """Return whether a batch that reads a record writes its rows, and not the batch with which their window closes.

    Spark's plan of the output as a stream decides. Raise Refused if the function can't run as a stream, as a run would.
    """
    if root.join:
        raise Refused(
            f"output {root.name}: a join can't be played by a test yet: which rows it has written is in the state "
            "of Spark's stream",
            data="only this test has read the rows",
            hint="test its two sides as functions, and the join itself by a run of the pipeline",
        )
    if root.stateful:
        raise Refused(
            f"output {root.name}: a processor with state can't be played by a test of a pipeline yet: its timers "
            "go by Spark's stream",
            data="only this test has read the rows",
            hint="test the processor by Spark's own TwsTester (pyspark.sql.streaming), and the output by a run of "
            "the pipeline",
        )
    if root.has_early_sessions:
        empty = spark.createDataFrame([], events.schema(pipeline))
        shape = results.of_pipeline(pipeline, root, windows.in_batch(empty, root), lookups)
        open_sessions.check_function(root, shape)
    if root.gets_whole_windows:  # its function gets whole windows, and no stream
        return False
    try:
        result = results.of_pipeline(pipeline, root, windows.in_stream(_stream(spark, pipeline), root), lookups)
        _check(spark, result, "Update" if root.panes == "early" else "Append")
    except AnalysisException as error:
        raise _refusal(root, error) from error
    plain = stateless.is_stateless(result)
    at_close.are_of(pipeline, root, stateless=plain)
    return at_close.as_they_come(root, stateless=plain) or root.window is None


def _stream(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    fields = events.schema(pipeline).fields
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]
    return spark.readStream.format("rate").load().select(*nothing)


def _check(spark: SparkSession, result: DataFrame, mode: str) -> None:
    jvm: Any = spark._jvm
    plan = result._jdf.queryExecution().analyzed()  # type: ignore[operator]
    of_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode)()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, of_mode)


def _refusal(root: Output, error: AnalysisException) -> Exception:
    known = query.refusal(root, error)
    if known is not error:
        return known
    return Refused(
        f"output {root.name}: Spark can't run {root.transform} as a stream: {first_line(error)}",
        data="only this test has read the rows",
        hint="put what only a batch can do (a sort, a rank, a second aggregation) into an output made from this "
        "one: from_output",
    )


# The records that an output rejects in a test, by the product's own rule: in time, or late and included by a backfill.


Row = dict[str, Any]
END = "oo_end"


@dataclass
class Rejected:
    """The records that one output has rejected so far."""

    pipeline: Pipeline
    root: Output
    _rows: list[Row] = field(default_factory=list)

    def met(self, came: DataFrame) -> None:
        """Judge the records that a batch has brought."""
        if self.root.reject:
            self._rows += self._of(came, late_too=False)

    def again(self, kept: DataFrame, closed: int, only: set[tuple[Any, ...]] | None) -> None:
        """Judge all records of the windows that end up to `closed` again, or of `only` these, as a backfill does."""
        if not self.root.reject:
            return

        def meant(row: Row) -> bool:
            return row[END] <= closed and (only is None or (row[WINDOW_START], row[WINDOW_END]) in only)

        self._rows = [row for row in self._rows if not meant(row)]
        self._rows += [row for row in self._of(kept, late_too=True) if meant(row)]

    def told(self) -> list[Row]:
        """Return each record with its window (None of a session) and the reason."""
        return [{name: value for name, value in row.items() if name != END} for row in self._rows]

    def _of(self, rows: DataFrame, *, late_too: bool) -> list[Row]:
        window, why = self.root.window, function.rejection_reason(self.pipeline, self.root, rows)
        rejected = rows.withColumn(function.REASON, why).filter(F.col(function.REASON).isNotNull())
        none, never = F.lit(None).cast("timestamp"), F.lit(0).cast("long")
        start, end, closes = none, none, never
        if isinstance(window, Session):
            closes = F.unix_micros(OO_EVENT_TIME) + F.lit(micros(window.gap))
        elif window is not None:
            rejected = windows.assign(rejected, window)
            start, end, closes = (
                F.col(f"{OO_WINDOW}.start"),
                F.col(f"{OO_WINDOW}.end"),
                F.unix_micros(f"{OO_WINDOW}.end"),
            )
        if window is not None and not late_too:
            rejected = rejected.filter(~windows.is_late(window, self.root.watermark_delay))
        columns = [F.col(f"`{name}`") for name in self.pipeline.columns()]
        found = rejected.select(
            *columns,
            start.alias(WINDOW_START),
            end.alias(WINDOW_END),
            F.col(function.REASON).alias("reason"),
            closes.alias(END),
        )
        return [{name: _in_utc(value) for name, value in row.items()} for row in found.toArrow().to_pylist()]


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


# What a sink's table has after the rows that are written to it: appended, upserted or added up, as the output declares.


WINDOW = (WINDOW_START, WINDOW_END)


def window_of(row: Row) -> tuple[Any, ...]:
    """Return the window of a row; only None if it has none."""
    return tuple(row.get(name) for name in WINDOW)


def newest_of(key: Callable[[Row], str], by: tuple[str, ...], rows: list[Row]) -> list[Row]:
    """Return of the rows with the same keys the newest, by these columns; all rows if there are no columns.

    Two equally new rows both stay.
    """
    if not by:
        return rows
    last: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        last[key(row)] = max(last.get(key(row), _position(by, row)), _position(by, row))
    return [row for row in rows if _position(by, row) == last[key(row)]]


def _position(by: tuple[str, ...], row: Row) -> tuple[Any, ...]:
    if missing := [name for name in by if row.get(name) is None]:
        raise Refused(
            f"a row has no {missing[0]}, by which the newest row is found: {row}",
            hint="give each row its position in the source",
        )
    return tuple(row[name] for name in by)


@dataclass
class Target:
    """The table of one output. Two rows of one window with the same keys raise Refused, as in the sinks."""

    output: Output
    _rows: list[Row] = field(default_factory=list)
    _added: list[Row] = field(default_factory=list)
    _deleted: dict[str, Row] = field(default_factory=dict)
    _changes: dict[tuple[str, tuple[Any, ...], bool], Row] = field(default_factory=dict)

    def write(self, rows: list[Row]) -> None:
        """Write what a batch of the stream writes."""
        sink = self.output.sink
        if sink.write == "upsert":
            rows = newest_of(self._keys, sink.sequence_by, rows)
        self._refuse_twins(rows)
        if sink.write == "increment":
            self._added += rows
        elif sink.write == HISTORY:
            for row in rows:
                is_gone = bool(row.get(sink.delete_when or ""))
                self._changes[self._keys(row), _position(sink.sequence_by, row), is_gone] = row
        elif sink.sequence_by:
            self._upsert_newest(rows)
        elif sink.write == "upsert":
            self._upsert(rows)
        else:
            self._rows += rows

    def replace(self, rows: list[Row], windows: Iterable[tuple[Any, ...]]) -> None:
        """Replace the rows of these windows, as a backfill does."""
        gone = set(windows)
        self._rows = [row for row in self._rows if window_of(row) not in gone]
        self._added = [row for row in self._added if window_of(row) not in gone]
        self.write(rows)

    def rows(self) -> list[Row]:
        """Return the rows of the table, in order of their windows."""
        made = {"increment": self._sums, HISTORY: self._versions}.get(self.output.sink.write, lambda: self._rows)
        rows = made()
        return sorted((dict(row) for row in rows), key=lambda row: (str(window_of(row)), repr(row)))

    def _keys(self, row: Row) -> str:
        if missing := [key for key in self.output.sink.keys if key not in row]:
            raise Refused(
                f"output {self.output.name}: keys {missing} are not among its columns",
                hint=f"it has: {', '.join(row)} ({OO_WINDOW} gives window_start and window_end)",
            )
        return repr([row[key] for key in self.output.sink.keys])

    def _refuse_twins(self, rows: list[Row]) -> None:
        if self.output.sink.write not in ("upsert", "increment"):
            return
        there: set[Any] = set()
        for row in rows:
            one = (self._keys(row), window_of(row))
            if one in there and self.output.sink.write == "upsert":
                raise Refused(
                    f"output {self.output.name}: two rows of one window have the same keys: "
                    f"{ {key: row[key] for key in self.output.sink.keys} }",
                    hint="group by the keys, or declare the keys that distinguish the rows",
                )
            there.add(one)

    def _upsert(self, rows: list[Row]) -> None:
        known = {self._keys(row): row for row in self._rows}
        for row in rows:
            before = known.get(self._keys(row))
            later = later_window_wins("upsert", self.output.sink.keys, row)
            if before is None or not later or window_of(row) >= window_of(before):
                known[self._keys(row)] = row
        self._rows = list(known.values())

    def _upsert_newest(self, rows: list[Row]) -> None:
        by, told = self.output.sink.sequence_by, self.output.sink.delete_when
        known = {self._keys(row): row for row in self._rows}
        for row in rows:
            key = self._keys(row)
            before = known.get(key, self._deleted.get(key))
            if before is not None and _position(by, before) > _position(by, row):
                continue
            here, there = (self._deleted, known) if told and row[told] else (known, self._deleted)
            there.pop(key, None)
            here[key] = {name: value for name, value in row.items() if name != told}
        self._rows = list(known.values())

    def _versions(self) -> list[Row]:
        """Return each change of a history that is not a delete, until the next change of its key."""
        told, places = self.output.sink.delete_when, sorted(self._changes)
        found = []
        for place, after in zip(places, [*places[1:], None], strict=True):
            row = self._changes[place]
            following = self._changes[after] if after is not None and after[0] == place[0] else None
            if not (told and row[told]):
                stored = {name: value for name, value in row.items() if name != told}
                found.append(stored | {VALID_TO: following and following[VALID_FROM], IS_CURRENT: following is None})
        return found

    def _sums(self) -> list[Row]:
        keys = self.output.sink.keys
        sums: dict[str, Row] = {}
        for row in self._added:
            plain = {name: value for name, value in row.items() if name not in WINDOW or name in keys}
            there = sums.setdefault(self._keys(row), {**plain, **{name: None for name in plain if name not in keys}})
            for name, value in plain.items():
                if name not in keys and value is not None:
                    there[name] = value if there[name] is None else there[name] + value
        return list(sums.values())


# Receive: from rows to records that are kept, by the product's own parser and rule of duplicates. The dedup horizon
# never passes, so no record is an expired record.


LINES = ("json", "csv")


@dataclass(frozen=True)
class Taken:
    """One batch as it is kept: records with the declared columns and `oo_event_time`, and the other records."""

    kept: pa.Table
    ingestion_time: datetime
    invalid: list[dict[str, Any]]
    duplicates: int

    @property
    def largest(self) -> int | None:
        """Return the largest event time that is kept, in microseconds."""
        times = pc.max(self.kept.column(OO_EVENT_TIME).cast(pa.int64()))
        found: int | None = times.as_py()
        return found


@dataclass
class Receive:
    """Receive, with its knowledge of earlier batches."""

    spark: SparkSession
    pipeline: Pipeline
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _batches: int = 0

    def take_in(self, batch: Batch) -> Taken:
        """Take in one batch."""
        now = batch.at or datetime.now(UTC)
        records = self._parsed(batch, now)
        fates = self._fates(records)
        invalid = records.filter(pa.array(fates == INVALID)).select([OO_REASON, PLACED, OO_RAW])
        kept = records.filter(pa.array(fates == KEPT)).select([*self.pipeline.columns(), OO_EVENT_TIME])
        told = [
            {"reason": row[OO_REASON], "place": str(_place(**row[PLACED])), "raw": row[OO_RAW]}
            for row in invalid.to_pylist()
        ]
        return Taken(kept, now, told, int((fates == DUPLICATE).sum()))

    def _parsed(self, batch: Batch, now: datetime) -> pa.Table:
        numbered = [*enumerate(batch.rows)]
        own = [(at, row) for at, row in numbered if isinstance(row, str)]
        made = [(at, row) for at, row in numbered if not isinstance(row, str)]
        as_json = replace(self.pipeline, source=Files(), aliases={})  # a row is of declared columns
        in_lines = self.pipeline if self.pipeline.source.format in LINES else as_json
        found = [self._records(rows, of, now) for rows, of in ((made, as_json), (own, in_lines)) if rows]
        found = found or [self._records([], as_json, now)]
        self._batches += 1
        return pa.concat_tables(found)

    def _records(self, rows: Sequence[tuple[int, Given]], pipeline: Pipeline, now: datetime) -> pa.Table:
        lines = [(line_of(row), None, self._batches, at) for at, row in rows]
        return parse.records(self.spark.createDataFrame(lines, session.schema_of(LINE_COLUMN)), pipeline, now).toArrow()

    def _fates(self, records: pa.Table) -> NDArray[np.int8]:
        code = np.where(records.column(OO_REASON).is_valid().to_numpy(), INVALID, CANDIDATE).astype(np.int8)
        if self.pipeline.by_position or self.pipeline.mode != "exactly_once":
            return code
        high, low, payload = (_numbers(records, name) for name in (OO_HIGH, OO_LOW, "oo_payload"))
        ids = Records(
            code, high.view(np.uint64), low.view(np.uint64), _numbers(records, OO_EVENT_TIME), payload,
            records.column(OO_UNKNOWN).is_valid().to_numpy(),
        )  # fmt: skip
        fates, _ = fates_of(ids, self._look_up)
        kept = fates == KEPT
        self._seen.update(zip(ids.high[kept].tolist(), ids.low[kept].tolist(), strict=True))
        return fates

    def _look_up(self, wanted: Ids) -> Seen:
        pairs = zip(wanted[0].tolist(), wanted[1].tolist(), strict=True)
        return Seen(np.array([pair in self._seen for pair in pairs], dtype=bool), LookUps())


def _place(oo_file: int, oo_position: int) -> RecordPlace:
    return RecordPlace(f"batch {oo_file}", oo_position, "row")


def _numbers(records: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.fill_null(records.column(name).cast(pa.int64()), 0).to_numpy()
    return found


# Outputs: batch after batch of kept records, between two frontiers, to the rows of each output.
#
# The frontier, windows, the rule for late records and the user's function are the product's (`core.frontier`,
# `outputs.windows`, `outputs.results`), over a bounded read of the records so far. This replaces Spark's state. An
# output that writes a window when it closes gets the rows of the windows that end between the closed times before and
# after a batch.


Window = tuple[Any, ...]


@dataclass
class Play:
    """A pipeline's outputs as they stand after some batches. `comes`: the result of `as_they_come` for each root."""

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
    _open: dict[str, set[Window]] = field(default_factory=dict)
    _fired_now: set[tuple[Any, ...]] = field(default_factory=set)
    _late_held: dict[str, dict[Bounds, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.targets = {output.name: Target(output) for output in self.pipeline.outputs}
        self.late = {output.name: [] for output in self.pipeline.outputs}
        self.panes = {output.name: [] for output in self.pipeline.outputs}
        self.rejected = {root.name: Rejected(self.pipeline, root) for root in self.pipeline.roots()}

    def batch(self, taken: Taken) -> None:
        """Play a batch of records that receive has kept."""
        before, self.frontier = self.frontier, self.frontier.after_batch(taken.largest)
        came = self._stamped(taken, before) if taken.kept.num_rows else None
        if came is not None:
            self._events.append(came)
        self._step, self._last = self._step + 1, taken.ingestion_time
        for root in self.pipeline.roots():
            self._note_late(root, taken, before)
            if came is not None:
                self.rejected[root.name].met(came)
            self._write(root, before, came)

    def close(self, silent_at: datetime | None = None) -> None:
        """Declare the input ended; or silent at this time, for long enough or not."""
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

    def include_late(self) -> None:
        """Fold in the late rows that the outputs' declarations include now, as the end of a run does."""
        for root in self.pipeline.roots():
            now = to_micros(self._last) or 0
            waiting = self._late_held.get(root.name, {}).items()
            late = {bounds for bounds, held in waiting if root.late_trigger and is_due(root.late_trigger, held, now)}
            if late:
                of_windows = {(to_time(start), to_time(end)) for start, end in late}
                self.backfill(root, None if isinstance(root.window, Session) else of_windows)

    def backfill(self, root: Output, only: set[Window] | None = None) -> None:
        """Compute closed windows of an output again, with their late rows.

        Raise Refused if a sink can't take them back.
        """
        assert root.window is not None
        chain = {output.name: what_to_do(output) for output in (root, *self.pipeline.made_from(root))}
        closed = self._closed(root, self.frontier)
        if closed is None or not self._events:
            return
        rows = results.of_pipeline(self.pipeline, root, windows.assign(self._all(), root.window), self.lookups)
        rows = rows.filter(windows.after_merge(F.unix_micros(f"{OO_WINDOW}.end") <= F.lit(closed)))
        for output, made in self._chain(root, rows):
            if chain[output.name] == "skip":
                continue
            there = [row for row in _plain(made) if only is None or window_of(row) in only]
            self._number(output, there, backfilled=True)
            if chain[output.name] == "resend":
                self.targets[output.name].write(there)
            else:
                # A session may have merged with others, so all closed ones are replaced.
                known = {(pane.window_start, pane.window_end) for pane in self.panes[output.name]}
                self.targets[output.name].replace(there, known if only is None else only)
            self._note(output, there, backfilled=True)
        self.rejected[root.name].again(self._all(), closed, only)
        self._late_held.pop(root.name, None)

    def _write(self, root: Output, before: Frontier, came: DataFrame | None) -> None:
        rows = self._written(root, before, came)
        if rows is None:
            return
        for output, made in self._chain(root, rows):
            there = _plain(made)
            if root.gives_changed_rows:
                there = self._changed(root, there)
            self._number(output, there)
            # A reader of files takes the newest pane of a window. A pane of all open sessions replaces the one before.
            if root.trigger is not None and (output.sink.write == "files" or root.has_early_sessions):
                self.targets[output.name].replace(there, {*self._fired_now, *map(window_of, there)})
            else:
                self.targets[output.name].write(there)
            self._note(output, there)

    def _written(self, root: Output, before: Frontier, came: DataFrame | None) -> DataFrame | None:
        """Return the rows of the function that a batch writes; None if it has nothing to do."""
        if root.trigger is not None:
            return self._fired(root, root.trigger, before, came)
        if root.gives_changed_rows:
            return None if came is None else self._of(root, self._all())
        if self.comes[root.name]:
            return None if came is None else self._of(root, came)
        was, now = self._closed(root, before), self._closed(root, self.frontier)
        if now is None or now == was or not self._events:
            return None
        end = F.unix_micros(f"{OO_WINDOW}.end")
        closing = end <= F.lit(now) if was is None else (end <= F.lit(now)) & (end > F.lit(was))
        return self._of(root, self._all()).filter(windows.after_merge(closing))

    def _fired(self, root: Output, trigger: Trigger, before: Frontier, came: DataFrame | None) -> DataFrame | None:
        """Return the windows that close with a batch, and the windows that get a pane from the batch."""
        held, closed = self._held.setdefault(root.name, {}), self._closed(root, self.frontier)
        met = {} if came is None else self._met(root, came)
        if isinstance(root.window, Session):
            return self._fired_sessions(root, trigger, held, met, before)
        due, after = triggers.decide_panes(trigger, held, met, closed, to_micros(self._last) or 0)
        for window, left in after.items():
            held.pop(window, None)
            if left is not None:
                held[window] = left
        self._fired_now = {(to_time(start), to_time(stop)) for (start, stop), left in after.items() if left is None}
        was, end = self._closed(root, before), F.unix_micros(f"{OO_WINDOW}.end")
        written = (
            F.lit(False) if closed is None else (end <= F.lit(closed)) & (end > F.lit(was if was is not None else -1))
        )
        for start, stop in due:
            written = written | ((F.unix_micros(f"{OO_WINDOW}.start") == start) & (end == stop))
        return self._of(root, self._all()).filter(written) if self._events else None

    def _fired_sessions(
        self, root: Output, trigger: Trigger, held: dict[Bounds, Held], met: dict[Bounds, int], before: Frontier
    ) -> DataFrame | None:
        """Return all sessions that were not closed before the batch, or None if it writes no pane."""
        assert isinstance(root.window, Session)
        was = self._closed(root, before)
        last = {one for one in self._open.get(root.name, ()) if was is None or (to_micros(one[1]) or 0) > was}
        due, left = triggers.decide_sessions(
            trigger, held, met, micros(root.window.gap), [to_micros(end) or 0 for _, end in last],
            self._closed(root, self.frontier), to_micros(self._last) or 0,
        )  # fmt: skip
        held |= {hour: one for hour, one in left.items() if one is not None}
        if not due:
            return None
        held.clear()
        later = F.unix_micros(f"{OO_WINDOW}.end") > F.lit(was if was is not None else -1)
        rows = self._of(root, self._all()).filter(windows.after_merge(later)).persist()
        self._fired_now = last
        self._open[root.name] = {window_of(row) for row in _plain(rows)}
        return rows

    def _met(self, root: Output, came: DataFrame) -> dict[Bounds, int]:
        assert root.window is not None
        rows = windows.counted(function.accepted_rows(self.pipeline, root, came), root.window, root.watermark_delay)
        found = rows.withColumns(windows.bounds()).select(WINDOW_START, WINDOW_END, "in_time").collect()
        return {(row.window_start, row.window_end): row.in_time for row in found}

    def _of(self, root: Output, rows: DataFrame) -> DataFrame:
        """Apply the function to the rows in time, each with its window."""
        if root.window is None:
            return results.of_pipeline(self.pipeline, root, rows, self.lookups)
        in_time = ~windows.is_late(root.window, root.watermark_delay)
        if isinstance(root.window, Session):
            placed = windows.assign(rows.filter(in_time), root.window)
        else:
            placed = windows.assign(rows, root.window).filter(in_time)
        return results.of_pipeline(self.pipeline, root, placed, self.lookups)

    def _chain(self, root: Output, rows: DataFrame) -> list[tuple[Output, DataFrame]]:
        made_from = self.pipeline.made_from(root)
        kept = rows.persist() if made_from else rows
        return [(output, results.rows_of(output, kept, self.lookups)) for output in (root, *made_from)]

    def _changed(self, root: Output, rows: list[Row]) -> list[Row]:
        before = Counter(map(repr, self._early.get(root.name, [])))
        self._early[root.name] = rows
        return [row for row in rows if not before[repr(row)]]

    def _number(self, output: Output, rows: list[Row], *, backfilled: bool = False) -> None:
        """Set the number of each row's pane, if the output numbers its panes. Raise Refused as a run does."""
        if output.pane_column is None:
            return
        last = dict[Bounds, LastPane]()
        for pane in self.panes[output.name]:
            bounds = bounds_in_micros(pane.window_start, pane.window_end)
            last[bounds] = LastPane(triggers.next_pane(last.get(bounds)), 0 if pane.final else pane.rows)
        if not backfilled:
            written = Counter(bounds_in_micros(*window_of(row)) for row in rows)
            fired = {bounds_in_micros(*window) for window in self._fired_now}
            pane_numbers.refuse_emptied(output, last, fired, self._closed(output, self.frontier), written)
        for row in rows:
            row[output.pane_column] = triggers.next_pane(last.get(bounds_in_micros(*window_of(row))))

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
        frontiers = pa.repeat(pa.scalar(known, events.FRONTIER_ROW), part.num_rows)
        judged = pa.RecordBatch.from_arrays([part.column(OO_EVENT_TIME), frontiers], [OO_EVENT_TIME, OO_FRONTIER])
        waiting, now = self._late_held.setdefault(root.name, {}), to_micros(taken.ingestion_time) or 0
        for starts, ends, positions in left_out.late_pairs(judged, root):
            for at in positions.tolist():
                key = int(starts[at]), int(ends[at])
                if isinstance(root.window, Session):
                    [key] = HOUR.assign(int(left_out.whole_micros(judged.column(OO_EVENT_TIME))[at]))
                known_late = waiting.get(key, Held(0, now))
                waiting[key] = Held(known_late.records + 1, known_late.since)
                window = (None, None) if isinstance(root.window, Session) else (starts[at], ends[at])
                record = part.slice(at, 1).select(self.pipeline.columns()).to_pylist()[0]
                record = {name: _in_utc(value) for name, value in record.items()}
                bounds = [None if time is None else to_time(int(time)) for time in window]
                self.late[root.name].append({WINDOW_START: bounds[0], WINDOW_END: bounds[1], **record})

    def _stamped(self, taken: Taken, known: Frontier) -> DataFrame:
        parts = [F.lit(to_time(value)).cast("timestamp").alias(name) for name, value in asdict(known).items()]
        more = {OO_INGESTION_TIME: _at(taken.ingestion_time), OO_FRONTIER: F.struct(*parts)}
        return self.spark.createDataFrame(taken.kept).withColumns(more)

    def _all(self) -> DataFrame:
        return reduce(DataFrame.unionByName, self._events)

    def _closed(self, root: Output, frontier: Frontier) -> int | None:
        return None if root.window is None else closed_until(frontier, root.window, micros(root.watermark_delay))

    def _root(self, output: Output) -> Output:
        return self.pipeline.root_of(output)


def shapes(spark: SparkSession, pipeline: Pipeline, lookups: results.Frames = results.NO_LOOKUPS) -> dict[str, bool]:
    """Return for each root whether its rows are written as they come. Raise Refused if a function can't be a stream."""
    return {root.name: as_they_come(spark, pipeline, root, lookups) for root in pipeline.roots()}


def _plain(rows: DataFrame) -> list[Row]:
    found = results.flat(rows).toArrow().to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in found]


def _at(time: datetime) -> Column:
    return F.lit(time).cast("timestamp")
