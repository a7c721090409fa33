"""The file sink: tasks write each pane's shards under temporary names, and record them in their units' transactions.

A row's shard is a hash of the row, or of the declared keys, so a replay cuts the rows the same way. The number of a
shard determines its partition. `onlyonce.sinks.files.finalize` makes the names final, once the batch is committed.

A format is a function of (binary file, schema, record batches), called once for each file. Without batches each format
writes a valid empty file. JSON lines and text get one column of finished lines, which Spark has made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from onlyonce.api import load
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.api.resolve import named
from onlyonce.api.sinks import FileSink
from onlyonce.commitlog import units
from onlyonce.commitlog.files import Files, Times
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.units import Units
from onlyonce.context import Query, RunContext
from onlyonce.core import file_names
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Plan, to_micros, to_time
from onlyonce.core.column_types import Types
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, Refused, Retryable
from onlyonce.core.file_names import FileKey
from onlyonce.core.shards import Shard, Temporary, Written, may_go, read_temporary
from onlyonce.core.stored_names import OO_WINDOW, WINDOW_END, WINDOW_START
from onlyonce.core.units import Content, UnitId, compare
from onlyonce.core.windows import Bounds
from onlyonce.database.connect import Database, Scope
from onlyonce.engine import encoding, worker
from onlyonce.engine.session import quoted
from onlyonce.engine.worker import attempt_name, session_of
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content, frames
from onlyonce.sinks.base.content import HASH, Tally
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.pinned import PARTITION, RecordBatches, check_replay, commit_nothing, counted, pin
from onlyonce.sinks.base.stored import File, Mentioned, Stored
from onlyonce.sinks.files import file_stores
from onlyonce.sinks.files.file_stores import Store, folder_of, store_of
from onlyonce.sinks.files.file_target import spellings
from onlyonce.tables import arrow_files

Format = Callable[[BinaryIO, pa.Schema, RecordBatches], None]
LINES = ("jsonl", "text")
"""The formats that get one column of lines."""

if TYPE_CHECKING:
    import pandas as pd


def format_of(name: str) -> Format:
    """Return the format of that name, or a user's own ('module:function'). Raise Refused if it is missing."""
    if ":" not in name:
        return FORMATS[name]
    found: Format = named(
        name, f"FileSink: the writer {name!r}",
        hint="it is 'module:function', the module importable from the folder of the declarations or installed",
    )  # fmt: skip
    return found


def _lines(file: BinaryIO, schema: pa.Schema, batches: RecordBatches) -> None:
    for batch in batches:
        lines = batch.column(0)
        if pc.any(pc.match_substring_regex(lines, "[\r\n]")).as_py():
            raise Refused(
                "FileSink: a row of text holds a line break, so it would be read as two",
                data="nothing of this unit was written",
                hint="replace line breaks in the transform, or write format='jsonl'",
            )
        # One join in Arrow for all lines of a batch; null is an empty line.
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), pc.fill_null(lines, ""))
        file.write(pc.binary_join(whole, "\n")[0].as_buffer())
        file.write(b"\n")


def _csv(file: BinaryIO, schema: pa.Schema, batches: RecordBatches) -> None:
    with content.csv_writer(file, schema, header=True) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _parquet(file: BinaryIO, schema: pa.Schema, batches: RecordBatches) -> None:
    with parquet.ParquetWriter(file, schema, **arrow_files.footer_form(schema)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _avro(file: BinaryIO, schema: pa.Schema, batches: RecordBatches) -> None:
    import fastavro

    declared: Any = {"type": "record", "name": "row", "fields": [_avro_field(field) for field in schema]}
    # fastavro has no columns; its own loop is compiled.
    fastavro.writer(file, declared, chain.from_iterable(batch.to_pylist() for batch in batches), codec="deflate")


FORMATS: dict[str, Format] = {"jsonl": _lines, "text": _lines, "csv": _csv, "parquet": _parquet, "avro": _avro}

_AVRO: dict[pa.DataType, Any] = {
    pa.string(): "string", pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int",
    pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _avro_field(field: pa.Field) -> dict[str, Any]:
    if not AVRO_NAME.fullmatch(field.name):
        raise Refused(
            f"FileSink: Avro does not allow the name of column {field.name!r}: it has letters a-z, digits and _, and "
            "no digit first",
            data="nothing was written",
            hint="give it another name in the function: F.count('*').alias('records'), or withColumnRenamed",
        )
    return {"name": field.name, "type": ["null", avro_type(field.name, field.type)], "default": None}


def check_avro(schema: pa.Schema) -> None:
    """Raise Refused for a column whose name or type Avro does not have."""
    for field in schema:
        _avro_field(field)


def avro_type(name: str, kind: pa.DataType) -> Any:
    """Return a column's type in Avro. Raise Refused for a type that has none here."""
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind not in _AVRO:
        raise Refused(
            f"FileSink: column {name} is {kind}, which Avro files don't hold here", hint="to_json() makes it text"
        )
    return _AVRO[kind]


# The task of a file sink: write temporary files, claim the unit, record the files, commit.
#
# The files are written before the transaction, since a transaction that waits for a disk holds up others. So two
# attempts of a task may write at the same time, under different names. The claim decides whose files count, and the
# other attempt removes its own. `onlyonce.sinks.files.sweep` removes the files of a killed task.


START, END, SHARD = "oo_start", "oo_end", "oo_shard"
RESULT = "partition int, files long"

Window = tuple[int | None, int | None]
Key = tuple[Window, int]


@dataclass(frozen=True)
class Work:
    """The parameters of a task that writes files. The driver decides them.

    place      where the files are, as the log stores it; `store` is the same place
    schema     the columns of the files, in Arrow
    windows    those of the batch, in microseconds: each gets all its shards, even without rows
    compared   whether a replay must have the same rows (not at least once, where the first attempt's files stay)
    """

    database: Database
    unit: UnitId
    incarnation_no: int
    epoch: int
    sink: FileSink
    place: str
    store: Store
    schema: pa.Schema
    floats: tuple[str, ...]
    partitions: int
    windows: tuple[Window, ...]
    compared: bool = True


def write_unit(work: Work) -> Callable[[RecordBatches], RecordBatches]:
    """Return the Arrow function of a batch: a partition's rows, sorted by window and shard → (partition, files)."""

    def run_task(batches: RecordBatches) -> RecordBatches:
        context: Any = TaskContext.get()
        here = replace(work, unit=replace(work.unit, partition=context.partitionId()))
        tally = Tally(HASH, dict(zip(work.floats, work.floats, strict=True)))
        made = _commit(here, counted(here.unit, batches, tally), tally)
        passing("files-unit-after-commit")
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([here.unit.partition], pa.int32()), "files": pa.array([made], pa.int64())}
        )

    return run_task


def _commit(work: Work, batches: RecordBatches, tally: Tally) -> int:
    with session_of(work.database, work.unit) as database:
        there = Units(database).find(work.unit)
    if there is not None:
        for _ in batches:
            pass
        _agree(work, there, tally)
        return 0
    attempt = Temporary(
        work.incarnation_no, work.unit.batch_id, work.unit.sink, work.unit.partition, work.epoch, uuid4().hex
    )
    begun: list[str] = []
    try:
        made = list(_write(work, attempt, batches, begun))
        _check_whole(work, made, tally)
        work.store.settle(begun)
    except BaseException:
        _discard(work, begun)
        raise
    passing("files-unit-before-claim")
    try:
        won = _record(work, made, tally)
    except CommitStateUnknown:
        won = _settle(work, made, tally)
    if not won:
        _discard(work, begun)
    return len(made) if won else 0


def _record(work: Work, made: list[Written], tally: Tally) -> bool:
    """Run the unit's transaction; return whether this attempt's files count."""
    with session_of(work.database, work.unit) as database, Units.once(database) as log:
        there = log.claim(units.Claim(work.unit, work.epoch, attempt_name(), "data"))
        passing("files-unit-after-claim")
        if there is not None:
            _agree(work, there, tally)
            return False
        Files(log.scope).record(work.unit, work.place, work.sink.shards, made)
        log.fill(work.unit, tally.content())
        passing("files-unit-before-commit")
    return True


def _settle(work: Work, made: list[Written], tally: Tally) -> bool:
    """Read the log after the answer to COMMIT was lost, then decide. docs/specification/unit.md."""
    with session_of(work.database, work.unit) as database:
        there, temporaries = Units(database).find(work.unit), Files(database).of_unit(work.unit)
    if there is None:
        # Its files stay for the sweep: the COMMIT may still be on its way.
        raise Retryable(f"unit {work.unit}: the COMMIT did not arrive", data="none of its files count")
    _agree(work, there, tally)
    return temporaries == {file.temporary for file in made}


def _agree(work: Work, there: Content, tally: Tally) -> None:
    if work.compared:
        compare(work.unit, there, tally.content())


def _discard(work: Work, temporaries: list[str]) -> None:
    for temporary in temporaries:
        work.store.remove(temporary)


def _write(work: Work, attempt: Temporary, batches: RecordBatches, begun: list[str]) -> Iterator[Written]:
    """Write each shard of each window, one open file at a time; then the shards without rows."""
    seen: set[Key] = set()
    for key, pieces in groupby(_pieces(work, batches), key=lambda piece: piece[0]):
        if key in seen:
            raise InvariantBroken(
                f"unit {work.unit}: the rows of shard {key[1]} came in two parts",
                data="nothing of this attempt was committed",
                hint="Spark has not kept a sort within its partition: report this with the Spark version",
            )
        seen.add(key)
        yield _file(work, attempt, key, (piece[1] for piece in pieces), begun)
    for window in work.windows:
        for shard in range(work.unit.partition, work.sink.shards, work.partitions):
            if (window, shard) not in seen:
                yield _file(work, attempt, (window, shard), iter(()), begun)


def _file(work: Work, attempt: Temporary, key: Key, batches: RecordBatches, begun: list[str]) -> Written:
    (start, end), number = key
    shard = Shard(to_time(start), to_time(end), number, work.sink.shards)
    name = work.sink.name(work.unit.sink, shard)
    temporary = attempt.file(len(begun), name.rsplit(".", 1)[-1])
    if work.sink.names:  # a function gets the number of the pane, which the end of the batch gives
        name = file_names.unnamed(temporary)
    rows = 0

    def passed() -> RecordBatches:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    begun.append(temporary)
    with work.store.create(temporary) as file:
        format_of(work.sink.format)(file, work.schema, passed())  # type: ignore[arg-type]
        passing("files-unit-mid-file")
    return Written(shard.window_start, shard.window_end, number, temporary, name, rows, file.bytes, file.checksum)


def _pieces(work: Work, batches: RecordBatches) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the batches cut where window or shard changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        keys = np.stack(
            [pc.fill_null(batch.column(name), 0).cast(pa.int64()).to_numpy() for name in (START, END, SHARD)]
        )
        cuts = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), batch.num_rows]
        body = batch.select(work.schema.names).cast(work.schema)
        windowed = batch.column(START).null_count == 0
        for first, last in pairwise(cuts):
            start, end, shard = keys[:, first].tolist()
            yield ((start, end) if windowed else (None, None), shard), body.slice(first, last - first)


def _check_whole(work: Work, made: list[Written], tally: Tally) -> None:
    wanted, written = tally.content().rows, sum(file.rows for file in made)
    if wanted != written:
        raise InvariantBroken(
            f"unit {work.unit}: {wanted} rows came, but {work.sink.format} has taken {written} of them",
            data="nothing of this attempt was committed",
            hint="a writer of your own must read its batches to their end",
        )


LINE = "oo_line"
WINDOW = (WINDOW_START, WINDOW_END)


class FilesWriter:
    """Writes one output to its files."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, FileSink)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self.place = self._sink.place(target(context.pipeline, output), context.target_suffix())

    def prepare(self, schema: StructType) -> None:
        """Check that the format exists and can hold the columns. Raise Refused."""
        if missing := [key for key in self._sink.keys if key not in schema.names]:
            raise Refused(
                f"output {self._output.name}: keys {missing} are not in {schema.names}",
                hint="the keys of a FileSink decide the shard of a row",
            )
        format_of(self._sink.format)
        if self._sink.names:
            load.naming(self._output)
        _, arrow = self._body(schema)
        if self._sink.format == "avro":
            check_avro(arrow)

    def lengths(self) -> Lengths:
        """Return no columns: a value may be of any length."""
        return {}

    def write(self, batch: Batch, rows: DataFrame, content_of_rows: Content) -> int:
        """Run one task and commit one unit for each pinned partition.

        A window without any row gets no file, unless it had files before. In an at-least-once replay the first
        attempt's files stay.
        """
        windows = _windows(rows) if content_of_rows.rows else set()
        self._commit(batch, rows, content_of_rows, windows, () if self._sink.skip_empty else windows)
        return 0

    def write_panes(
        self, batch: Batch, rows: DataFrame, content_of_rows: Content, fired: Collection[Bounds]
    ) -> Collection[Bounds]:
        """See `WritesPanes`."""
        if not fired:
            self.write(batch, rows, content_of_rows)
            return ()
        first, last = min(start for start, _ in fired), max(start for start, _ in fired)
        emptied = self._replace(batch, rows, content_of_rows, Span(first, last + 1), {*fired})
        return [(start, end) for start, end in emptied if start is not None and end is not None]

    def check_panes(self, windows: Collection[Window]) -> None:
        """See `WritesPanes`."""
        times = [(to_time(start), to_time(end)) for start, end in sorted(windows, key=str)]
        database, instance = self._query.database, self._context.instance
        check_pane_names(Files(database), self._output, self.place, instance, times)

    def landed(self, plan: Plan) -> bool:
        """Return False: what is written is in units, which the log counts itself."""
        return False

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """Write a new pane for each window, and an empty one for windows that had files and have no rows any more."""
        self._replace(batch, rows, content_of_rows, span, None)

    def end(self, scope: Scope, batch: Batch) -> None:
        """Check that all units are in the log, and make their files panes of their windows."""
        plan = batch.plan
        there = Units(scope).of_batch(plan.incarnation, plan.batch_id)
        units.expect(there, self._output.name, plan.partitions, plan.incarnation, plan.batch_id)
        give_pane_names(Files(scope), self._output, self.place, plan.incarnation, plan.batch_id)

    def _replace(
        self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span, among: set[Bounds] | None
    ) -> set[Window]:
        """Write the panes, and return the windows that get an empty one. They start in the span, and are in `among`."""
        windows = _windows(rows) if content_of_rows.rows else set()
        known = Files(self._query.database).windows_in(self._context.instance, self._output.name, span)
        had: set[Window] = {(to_micros(start), to_micros(end)) for start, end in known}
        gone = (had if among is None else had & among) - windows
        self._commit(batch, rows, content_of_rows, windows | gone, gone if self._sink.skip_empty else windows | gone)
        return gone

    def _commit(
        self,
        batch: Batch,
        rows: DataFrame,
        content_of_rows: Content,
        windows: set[Window],
        whole: set[Window] | tuple[()],
    ) -> None:
        """Write and commit the units. The windows in `whole` get all their shards, even shards without rows."""
        plan, schema, database, driver = batch.plan, rows.schema, self._query.database, self._query.driver
        passing("files-before-units")
        if not windows:
            commit_nothing(database, driver.epoch, batch, self._output.name, content_of_rows)
            passing("files-after-units")
            return
        self.check_panes(windows)
        shard = F.pmod(self._key(schema), F.lit(self._sink.shards))
        pinned = pin(rows, schema, F.pmod(shard, F.lit(plan.partitions)).cast("int"), plan.partitions)
        if batch.replayed and not batch.at_least_once:
            check_replay(database, plan, self._output.name, pinned, schema)
        columns, arrow = self._body(schema)
        floats = content.floats(schema)
        beside = [column.alias(name) for name, column in floats.items() if name not in arrow.names]
        placed = pinned.select(*columns, *beside, *_place(schema, shard), HASH, PARTITION)
        placed = placed if content_of_rows.rows else _no_rows(placed, plan.partitions)
        work = Work(
            database,
            UnitId(plan.incarnation, plan.batch_id, self._output.name, 0),
            driver.number,
            driver.epoch,
            self._sink,
            self.place,
            file_stores.store_of(self.place),
            arrow,
            tuple(floats),
            plan.partitions,
            tuple(sorted(whole, key=str)),
            not batch.at_least_once,
        )
        rows = placed.sortWithinPartitions(START, END, SHARD, HASH)
        worker.mapped(rows, write_unit(work), RESULT).collect()
        passing("files-after-units")

    def _key(self, schema: StructType) -> Column:
        keys = [F.col(quoted(key)) for key in self._sink.keys]
        return F.xxhash64(*keys) if keys else content.row_hash(schema)

    def _body(self, schema: StructType) -> tuple[list[Column], pa.Schema]:
        """Return the columns of the files, and their Arrow schema."""
        if self._sink.format == "jsonl":
            return [encoding.json_object(schema).alias(LINE)], pa.schema([(LINE, pa.string())])
        if self._sink.format == "text":
            return [F.col(quoted(self._text_column(schema))).alias(LINE)], pa.schema([(LINE, pa.string())])
        fields = schema.fields
        if self._sink.format == "csv":
            strings = [encoding.is_nested(f.dataType) or isinstance(f.dataType, BinaryType) for f in fields]
            stored = [
                StructField(f.name, StringType()) if string else f for f, string in zip(fields, strings, strict=True)
            ]
            return [encoding.in_csv(f) for f in fields], to_arrow_schema(StructType(stored), timezone="UTC")
        return [F.col(quoted(f.name)) for f in fields], to_arrow_schema(schema, timezone="UTC")

    def _text_column(self, schema: StructType) -> str:
        lines = [field for field in schema.fields if field.name not in WINDOW]
        if len(lines) != 1 or not isinstance(lines[0].dataType, StringType):
            raise Refused(
                f"output {self._output.name}: format='text' writes one column of text, but there is "
                f"{', '.join(field.simpleString() for field in lines)}",
                data="nothing was written",
                hint=f"let the transform give one string column next to {OO_WINDOW}, or choose jsonl or csv",
            )
        return lines[0].name


def _windows(rows: DataFrame) -> set[Window]:
    if WINDOW[0] not in rows.columns:
        return {(None, None)}
    found = rows.select(*[F.unix_micros(name).alias(name) for name in WINDOW]).distinct().collect()
    return {(row[0], row[1]) for row in found}


def _no_rows(rows: DataFrame, partitions: int) -> DataFrame:
    """Return an empty frame with these columns that has a task for each partition.

    Spark runs no task for a frame that it knows to be empty.
    """
    none = rows.sparkSession.range(0, partitions, 1, partitions).filter("id < 0")
    return none.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema.fields])


def _place(schema: StructType, shard: Column) -> list[Column]:
    times = [F.unix_micros(name) if name in schema.names else F.lit(None).cast("long") for name in WINDOW]
    return [times[0].alias(START), times[1].alias(END), shard.cast("int").alias(SHARD)]


# What a file sink stores: delivered files, files of earlier panes, manifests, and temporary files of attempts.


GOES = "no later run reads a file that onlyonce finalize has named: delete it there"


@dataclass(frozen=True)
class StoredInFiles(Stored):
    """The folder, or the prefix of an object store, of a file sink."""

    database: Database
    place: str

    def files(self) -> Iterator[File]:
        """Yield each existing file."""
        for at, read in store_of(self.place).everything():
            yield File(at, read, GOES)

    def root(self) -> str:
        """Return the folder or prefix."""
        return self.place

    def clean(self, mentions: Mentions, mentioned: Mentioned) -> None:
        """Remove the temporary files that no attempt may commit."""
        store = store_of(self.place)
        there = {name: temporary for name, _ in store.temporaries() if (temporary := read_temporary(name))}
        all_places = spellings({self.place, *Files(self.database).places()})
        known = Files(self.database).standings(next(some for some in all_places if self.place in some), there)
        for at, read in [*store.everything()]:
            name = at.rpartition("/")[2]
            if name in there and may_go(there[name], known[name]) and mentioned(File(at, read, GOES)):
                store.remove(name)


# What `targets` asks of each kind.


writer = FilesWriter


def stored(database: Database, sink: FileSink, where: str) -> Stored:
    """Return what the target stores."""
    return StoredInFiles(database, sink.place(where, ""))


def types_there(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """Return None: there is no table whose types could differ. Raise Refused for columns that Avro does not hold."""
    if isinstance(output.sink, FileSink) and output.sink.format == "avro":
        check_avro(to_arrow_schema(schema, timezone="UTC"))
    return None


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Return the rows of the newest final files of each window in memory. Raise Refused."""
    assert isinstance(output.sink, FileSink)
    import pandas as pd

    readers = {
        "jsonl": lambda place: pd.read_json(place, lines=True),
        "csv": pd.read_csv,
        "parquet": pd.read_parquet,
    }
    if "://" in (output.sink.path or ""):
        raise Refused(
            f"output {output.name} is in an object store, where manifests say what is final", data=frames.NO_ROWS,
            hint="read the files that the manifests name",
        )  # fmt: skip
    if output.sink.format not in readers:
        raise Refused(
            f"output {output.name}: pandas has no reader for {output.sink.format}",
            data=frames.NO_ROWS,
            hint="read its files",
        )
    with Views.once(Database(frames.reader_url(), frames.NAME)) as views:
        known = views.rows("files_of", instance=instance, n=frames.ALL)
    final = [file for file in known if file["output"] == output.name and file["state"] == "final"]
    places = [folder_of(file["place"]) / file["name"] for file in final if file["rows"]]
    return (
        pd.concat([readers[output.sink.format](place) for place in places], ignore_index=True)
        if places
        else pd.DataFrame()
    )


# Number the panes of a batch, and name their files by the output's function if it declares one (`FileSink.names`).
#
# The names are decided twice. Before the files of a batch are written, a name that can't be given is refused: nothing
# is written yet, so the function can be corrected. The transaction that ends the batch decides them for good, with the
# panes that it numbers. From then on the log has the names, and `onlyonce finalize` calls no function.


def check_pane_names(files: Files, output: Output, place: str, instance: str, windows: Iterable[Times]) -> None:
    """Raise Refused if the next panes of these windows can't be named."""
    if not output.sink.names:
        return
    panes = files.next_panes(instance, output.name, windows)
    keys = [FileKey(*window, pane, shard) for window, pane in panes.items() for shard in range(_sink(output).shards)]
    _pane_names(files, output, place, keys, file_names.NOTHING_WRITTEN)


def give_pane_names(files: Files, output: Output, place: str, incarnation: str, batch_id: int) -> None:
    """Number the panes of a batch and name their files, in the transaction that ends the batch. Raise Refused.

    A repetition changes nothing.
    """
    files.give_panes(incarnation, batch_id, output.name)
    if output.sink.names:
        numbers = files.unnamed(incarnation, batch_id, output.name)
        named = _pane_names(files, output, place, numbers, file_names.NOT_ENDED)
        files.give_names({numbers[key]: name for key, name in named.items()})


def _pane_names(files: Files, output: Output, place: str, keys: Iterable[FileKey], data: str) -> dict[FileKey, str]:
    subject, sink = load.subject_of_names(output), _sink(output)
    named = file_names.name_files(load.naming(output), subject, keys, sink.shards, sink.ending, data)
    file_names.refuse_taken(subject, named, files.named(place, named.values()), data)
    return named


def _sink(output: Output) -> FileSink:
    assert isinstance(output.sink, FileSink)
    return output.sink
