"""The Iceberg sink: a reference unit and a commit for each batch, which names the batch in the table's own metadata.

As with Delta the unit says what the commit must hold before it is written. Spark's tasks write the rows into data files
by pyiceberg, without a jar, and the driver commits them (`iceberg_commits`).
"""

from __future__ import annotations

import itertools
import logging
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType
from pyiceberg import types
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import (
    ParquetFormatModel,
    ParquetFormatWriter,
    PyArrowFileIO,
    _dataframe_to_data_files,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Properties
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Iceberg, Output, Pipeline, target
from onlyonce.commitlog.units import Units
from onlyonce.context import Query, RunContext
from onlyonce.core import column_types, ownership, stored_names
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Types
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.core.stored_names import WINDOW_START
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import Database, Scope
from onlyonce.engine import worker
from onlyonce.engine.session import quoted
from onlyonce.failpoints import passing
from onlyonce.sinks.base import content as base_content
from onlyonce.sinks.base import frames, pinned
from onlyonce.sinks.base.content import Check, Tally
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.stored import File, Stored
from onlyonce.sinks.iceberg import iceberg_catalogs, iceberg_commits
from onlyonce.tables import arrow_files
from onlyonce.tables.checkpoint import NotDecoded

Files = Callable[[Table], Sequence[DataFile]]
"""Writes the rows as data files of a table. No snapshot names the files yet."""

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Batched:
    """The expected content of one batch of one output, and the driver's epoch."""

    unit: UnitId
    writer: str
    epoch: int
    content: Content
    replayed: bool = True

    def commit(self, content: str) -> iceberg_commits.Commit:
        """Return the commit for rows of that content."""
        return iceberg_commits.Commit(
            self.writer, self.unit.sink, self.unit.batch_id, self.epoch, str(self.unit), content
        )


def write_unit(
    database: Database, table: Table, batch: Batched, files: Files, instead_of: BooleanExpression | None = None
) -> int | None:
    """Write the reference unit, then the rows, commit and compare. Return the id of the snapshot.

    A batch without rows has no commit, unless it removes rows (`instead_of`). The conformance suite calls this,
    too.
    """
    pinned.reference(database, batch.unit, batch.epoch, batch.content, "iceberg")
    if not batch.content.rows and instead_of is None:
        return None
    return iceberg_commits.once(table, batch.commit(batch.content.exact), files, instead_of, replayed=batch.replayed)


def write_plainly(table: Table, batch: Batched, offsets: str, files: Files) -> None:
    """Write and commit at least once: without a reference unit.

    Whatever the first attempt wrote is right, as changed code may return different rows in a replay.
    """
    if batch.content.rows:
        iceberg_commits.once(table, batch.commit(offsets), files, replayed=batch.replayed)


# Write rows into data files of an Iceberg table, in Spark's tasks. No snapshot names the files until the driver
# commits.
#
# The table's own FileIO writes the files to the table's location, with the ids of its columns and the statistics of its
# properties. Files of a failed task are not removed.


FILE, TALLY = "oo_file", "oo_tally"
RESULT = f"{FILE} binary, {TALLY} binary"
ARROW = pa.schema({FILE: pa.binary(), TALLY: pa.binary()})
"""A task returns a row for each file, with the commit's data about it, and a row with the content of its rows."""
TARGET = 128 * 1024 * 1024
"""Bytes of Arrow that are held before a file of them is written."""
Batches = Iterator[pa.RecordBatch]


class _Writer(ParquetFormatWriter):
    """Writes no bounds of a column with a NaN (`footer_form`). The manifest takes its bounds from the footer.

    pyiceberg passes all rows of a file at once.
    """

    def write(self, table: pa.Table) -> None:
        self._parquet_writer_kwargs |= arrow_files.footer_form(table.schema, table)
        super().write(table)


class _Model(ParquetFormatModel):
    def create_writer(
        self, output_file: OutputFile, file_schema: Schema, properties: Properties
    ) -> ParquetFormatWriter:
        return _Writer(output_file, file_schema, properties)


FileFormatFactory._registry[FileFormat.PARQUET] = _Model()  # `register` refuses a second model
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)  # it warns about each column without bounds


def written_files(rows: DataFrame | pa.Table, table: Table, check: Check | None = None) -> list[DataFile]:
    """Write rows that have their HASH into files. Spark's tasks write a frame; this process writes a table.

    `check` gets the content of the rows as they were written. Its number of rows is from the files' footers, so a
    writer that leaves a row out is found before the commit.
    """
    columns = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    found = worker.ran(rows, writing(table), RESULT).to_pylist()
    files = read(found)
    if check:
        content = base_content.received(columns, [row[TALLY] for row in found])
        check(replace(content, rows=sum(file.record_count for file in files)))
    return files


def writing(table: Table) -> Callable[[Batches], Batches]:
    """Return the function of a task that writes its rows."""
    return of_metadata(_small(table.metadata), table.io)


def of_metadata(metadata: TableMetadata, io: FileIO) -> Callable[[Batches], Batches]:
    """Return the function of a task from the part of the table's metadata that the task needs."""

    def write(brought: Batches) -> Batches:
        found: list[Tally] = []
        for part in _parts(base_content.tallied_on_the_way(brought, found)):
            passing("iceberg-before-file")
            rows = fitted(part, metadata)
            files = list(_dataframe_to_data_files(metadata, rows, io, uuid4()))
            passing("iceberg-after-file")
            yield pa.RecordBatch.from_pylist(
                [{FILE: pickle.dumps((metadata.default_spec_id, file)), TALLY: None} for file in files], ARROW
            )
        yield pa.RecordBatch.from_pylist([{FILE: None, TALLY: base_content.sent(tally)} for tally in found], ARROW)

    return write


def read(rows: Iterable[Mapping[str, Any]]) -> list[DataFile]:
    """Return the files that tasks have reported."""
    files = []
    for row in rows:
        if row[FILE] is None:
            continue
        spec, file = pickle.loads(row[FILE])
        file.spec_id = spec  # by which its partitions were cut; it is not pickled
        files.append(file)
    return files


def fitted(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """Return rows with the columns of the table, in its order. A column that the rows lack is null."""
    wanted = metadata.schema().as_arrow()
    by_name = {name.lower(): name for name in rows.column_names}
    columns = [
        rows.column(by_name[field.name.lower()])
        if field.name.lower() in by_name
        else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.table([column.cast(field.type) for column, field in zip(columns, wanted, strict=True)], schema=wanted)


def _parts(brought: Batches) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in brought:
        if batch.num_rows:
            held.append(batch)
        if sum(one.nbytes for one in held) >= TARGET:  # a batch has thousands of rows, so these are few
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _small(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata without what grows with the table's history."""
    return metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None}
    )


START = WINDOW_START


class IcebergWriter:
    """Writes one output to its table."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Iceberg)
        self._context, self._query, self._output = context, query, output
        self.place = Place(target(context.pipeline, output)).of_run(context.target_suffix())
        self._snapshot: int | None = None
        self._table_id: str | None = None

    def prepare(self, schema: StructType) -> None:
        """Make the table, or add new columns. Raise Refused for a table that can't work, or has another owner."""
        wanted = columns_of(self._output, schema)
        table = make_table(self._catalog, self.place.where, wanted)
        iceberg_catalogs.claim_table(table, self._owner)
        fit_table(self._output, table, wanted)
        self._table_id = str(table.metadata.table_uuid)

    def lengths(self) -> Lengths:
        """Return no columns: a value may be of any length."""
        return {}

    def write(self, batch: Batch, rows: DataFrame, content: Content) -> int:
        """Write the reference unit, then the rows, commit and compare. Return 0.

        An at-least-once batch has no reference unit, but the table's property still prevents a second commit.
        """
        table = self._table()
        if content.rows:
            self._check(table, rows)
        if batch.at_least_once:
            write_plainly(table, self._batched(batch, content), batch.plan.offsets_hash, _written(rows, None))
        else:
            self._snapshot = write_unit(
                self._query.database,
                table,
                self._batched(batch, content),
                _written(rows, self._check_written(batch, content)),
            )
        return 0

    def landed(self, plan: Plan) -> bool:
        """Return whether the table has this batch."""
        there = iceberg_commits.last(
            self._table().metadata,
            iceberg_commits.key(stored_names.writer(self._context.platform, plan.incarnation), self._output.name),
        )
        return there is not None and bool(there["batch"] >= plan.batch_id)

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """Replace the rows of the windows in one commit."""
        table = self._table()
        self._check(table, rows)
        self._snapshot = write_unit(
            self._query.database,
            table,
            self._batched(batch, content),
            _written(rows, self._check_written(batch, content)),
            _windows(span),
        )

    def end(self, scope: Scope, batch: Batch) -> None:
        """Note the snapshot of the rows in the platform's log, which has the unit from its start."""
        pinned.end(scope, batch, self._output.name)
        if self._snapshot is not None:
            Units(scope).note_snapshot(
                UnitId(batch.plan.incarnation, batch.plan.batch_id, self._output.name, 0), self._snapshot
            )

    @cached_property
    def _catalog(self) -> Catalog:
        return iceberg_catalogs.catalog(str(self.place.variable))

    @cached_property
    def _owner(self) -> str:
        return f"{self._context.instance}/{self._output.name} of platform {self._context.platform}"

    def _table(self) -> Table:
        table = iceberg_catalogs.table(self._catalog, self.place, self._output.name)
        ownership.refuse_replaced(self.place.where, self._table_id, str(table.metadata.table_uuid))
        iceberg_catalogs.check_owner(table, self._owner)
        refuse_columns(self._output, table)
        return table

    def _batched(self, batch: Batch, content: Content) -> Batched:
        unit = UnitId(batch.plan.incarnation, batch.plan.batch_id, self._output.name, 0)
        return Batched(
            unit,
            stored_names.writer(self._context.platform, unit.incarnation),
            self._query.driver.epoch,
            content,
            batch.replayed,
        )

    def _check_written(self, batch: Batch, content: Content) -> Check:
        return partial(pinned.check, self._batched(batch, content).unit, content)

    def _check(self, table: Table, rows: DataFrame) -> None:
        """Raise Refused for rows that the table does not take, before there is a unit.

        The table would not take the rows at any replay either.
        """
        refuse_changed(self._output, table, rows.columns)
        names = {name.lower(): name for name in rows.columns}
        for required in (field.name for field in table.schema().fields if field.required):
            if wrong := rows.filter(F.col(quoted(names[required.lower()])).isNull()).limit(1).collect():
                raise Refused(
                    f"output {self._output.name}: {self.place.where} does not take {wrong[0].asDict()}: its column "
                    f"{required} is required",
                    data="nothing of this batch was written to the table",
                    hint="let the transform give rows that the table takes, or make the column optional there",
                )


def _written(rows: DataFrame, check: Check | None) -> Files:
    """Return a function with which Spark's tasks write the rows. See `written_files`."""
    return lambda table: written_files(base_content.hashed(rows), table, check)


def _windows(span: Span) -> BooleanExpression:
    """Return the condition for rows whose windows start in a span."""
    first, stop = span.times
    return And(GreaterThanOrEqual(START, first.isoformat()), LessThan(START, stop.isoformat()))


# The files of an Iceberg table: data files, manifests with the bounds of columns, and metadata, of all its snapshots.
# Also files that killed writers and expired snapshots have left behind.


CURRENT = "delete these rows in your table, then expire the snapshots before that"
OLDER = "the table has it until expire_snapshots and remove_orphan_files of your engine remove it"
ORPHAN = "no snapshot has it: remove_orphan_files of your engine removes it"
"""A file of a task that was killed, of a commit that lost a conflict, or of an expired snapshot.

It stays, since another engine's running commit may contain it.
"""


@dataclass(frozen=True)
class StoredInIceberg(Stored):
    """A table of an Iceberg catalog."""

    target: str

    def files(self) -> Iterator[File]:
        """Yield each file of each snapshot, and each other file in the table's folders, by its path in the store."""
        table, there = iceberg_catalogs.of_target(Place(self.target)), list[str]()
        if table is None:
            return
        with iceberg_catalogs.answering(self.target):
            current = {task.file.file_path for task in table.scan().plan_files()}
            paths = dict.fromkeys(_paths(table), OLDER) | dict.fromkeys(current, CURRENT)
            if isinstance(table.io, PyArrowFileIO):
                there = [path for folder in _folders(table) for path in _below(table.io, folder)]
            else:
                yield File(table.location(), _unlisted, ORPHAN)
        for path, goes in (dict.fromkeys(there, ORPHAN) | paths).items():
            yield File(path, lambda path=path: _read(table, path), goes)  # type: ignore[misc]

    def root(self) -> str | None:
        """Return the folder of the table."""
        table = iceberg_catalogs.of_target(Place(self.target))
        return table.location() if table else None


def _paths(table: Table) -> Iterator[str]:
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                yield entry.data_file.file_path


def _folders(table: Table) -> set[str]:
    elsewhere = (table.properties.get(name) for name in ("write.data.path", "write.metadata.path"))
    return {folder.rstrip("/") for folder in (table.location(), *elsewhere) if folder}


def _below(io: PyArrowFileIO, folder: str) -> Iterator[str]:
    scheme, bucket, path = io.parse_location(folder, io.properties)
    found = io.fs_by_scheme(scheme, bucket).get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    yield from (folder.removesuffix(path) + file.path for file in found if file.type == FileType.File)


def _unlisted() -> bytes:
    raise NotDecoded("files without a snapshot, of which py-io-impl of the catalog gives no list")


def _read(table: Table, path: str) -> bytes:
    with iceberg_catalogs.answering(path):
        file = table.io.new_input(path)
        if file.exists():
            with file.open() as content:
                return bytes(content.read())
    raise FileNotFoundError(path)


# What `targets` asks of each kind.


writer = IcebergWriter


def stored(database: Database, sink: Iceberg, where: str) -> Stored:
    """Return what the table stores."""
    return StoredInIceberg(where)


def types_there(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """Return the types that the sink stores for the columns, and the types of the existing table; None if there is
    none.

    Raise Refused if the rows can't be written to it.
    """
    place = Place(target(pipeline, output))
    wanted = columns_of(output, schema)
    table = iceberg_catalogs.of_target(place)
    if table is None:
        return None
    refuse_columns(output, table)
    _refuse_required(output, table, wanted.column_names)
    return kinds(wanted), kinds(table.schema()), place.where


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Return the table's rows in memory. Raise Refused."""
    place = frames.place_of(pipeline, output, instance).text
    if (found := iceberg_catalogs.table_frame(place)) is None:
        raise frames.not_yet(pipeline, output, instance, place)
    return found


# The columns of an Iceberg table: make the table for a function's rows, add new columns, refuse what does not fit.
#
# A change that a team makes during a run may be noticed only at the next start.

PLAIN = {
    spark.BooleanType: types.BooleanType(),
    spark.ByteType: types.IntegerType(),
    spark.ShortType: types.IntegerType(),
    spark.IntegerType: types.IntegerType(),
    spark.LongType: types.LongType(),
    spark.FloatType: types.FloatType(),
    spark.DoubleType: types.DoubleType(),
    spark.StringType: types.StringType(),
    spark.BinaryType: types.BinaryType(),
    spark.DateType: types.DateType(),
    spark.TimestampType: types.TimestamptzType(),
    spark.TimestampNTZType: types.TimestampType(),
}
MADE_WITH = {
    "commit.manifest-merge.enabled": "true",  # or each commit names the manifests of all earlier commits
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""The properties of a table that the platform makes, so that its lists don't grow with each batch.

The user's tools expire its snapshots.
"""


def columns_of(output: Output, schema: spark.StructType) -> Schema:
    """Return the columns of Spark's rows as Iceberg's. Raise Refused for a type that Iceberg lacks."""
    numbers = itertools.count(1)
    fields = [
        types.NestedField(next(numbers), field.name, _kind(output, field, field.dataType, numbers), required=False)
        for field in schema
    ]
    for field in fields:
        if _mistaken(field.field_type):
            raise _of_structs(output, field.name)
    return Schema(*fields)


def _kind(output: Output, column: spark.StructField, kind: spark.DataType, numbers: Iterator[int]) -> types.IcebergType:
    if type(kind) in PLAIN:
        return PLAIN[type(kind)]
    if isinstance(kind, spark.DecimalType):
        return types.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return types.ListType(next(numbers), _kind(output, column, kind.elementType, numbers), element_required=False)
    if isinstance(kind, spark.MapType):
        inside = [_kind(output, column, one, numbers) for one in (kind.keyType, kind.valueType)]
        return types.MapType(next(numbers), inside[0], next(numbers), inside[1], value_required=False)
    if isinstance(kind, spark.StructType):
        fields = [
            types.NestedField(next(numbers), one.name, _kind(output, column, one.dataType, numbers), required=False)
            for one in kind
        ]
        return types.StructType(*fields)
    raise Refused(
        f"{declared_at(output)}output {output.name}: column {column.name} is {kind.simpleString()}, which no type "
        "of Iceberg holds here",
        data="nothing was written",
        hint="let the function give another type",
    )


def kinds(schema: Schema) -> dict[str, str]:
    """Return the type of each column as a string without field ids, so that two tables' types can be compared."""
    plain = schema_to_pyarrow(schema, include_field_ids=False)
    return {
        one.name: str(one.field_type) if one.field_type.is_primitive else str(plain.field(one.name).type)
        for one in schema.fields
    }


def make_table(among: Catalog, name: str, schema: Schema) -> Table:
    """Return the table, and make it if it is missing. If several drivers try at the same time, one makes it."""
    if (found := iceberg_catalogs.find_table(among, name)) is not None:
        return found
    with iceberg_catalogs.answering(name):
        try:
            among.create_namespace_if_not_exists(name.rsplit(".", 1)[0])
            return among.create_table(name, schema, properties=MADE_WITH)
        except (TableAlreadyExistsError, NamespaceAlreadyExistsError):
            return among.load_table(name)


def fit_table(output: Output, table: Table, wanted: Schema) -> None:
    """Add the columns that the table lacks, at its end.

    Raise Refused if the rows can't be written; then no column is added.
    """
    refuse_columns(output, table)
    column_types.refuse_other(
        f"{declared_at(output)}output {output.name}", ".".join(table.name()), kinds(wanted), kinds(table.schema())
    )
    _refuse_required(output, table, wanted.column_names)
    there = {field.name.lower() for field in table.schema().fields}
    missing = [field for field in wanted.fields if field.name.lower() not in there]
    if missing:
        _add(table, missing)


def refuse_changed(output: Output, table: Table, columns: Collection[str]) -> None:
    """Raise Refused if the table has lost a column of the rows since the run began, or requires one they lack."""
    nothing = "nothing of this batch was written to the table"
    there = {name.lower() for name in table.schema().column_names}
    if lost := [name for name in columns if name.lower() not in there]:
        raise Refused(
            f"{declared_at(output)}output {output.name}: {'.'.join(table.name())} has no column {lost[0]} any more, "
            "which the rows have",
            data=nothing,
            hint="start the run again, which adds the column to the table; or let the function not give it",
        )
    _refuse_required(output, table, columns, nothing)


def _refuse_required(output: Output, table: Table, columns: Collection[str], data: str = "nothing was written") -> None:
    required = [field.name for field in table.schema().fields if field.required]
    whose = f"{declared_at(output)}output {output.name}"
    column_types.refuse_required(whose, ".".join(table.name()), columns, required, data)


def _add(table: Table, missing: list[types.NestedField]) -> None:
    with iceberg_catalogs.answering(".".join(table.name())):
        try:
            with table.update_schema() as change:
                for field in missing:
                    change.add_column((field.name,), field.field_type)
        except (CommitFailedException, ValueError):
            # Two drivers at the same time: one adds the columns, the other gets an error because they exist.
            table.refresh()
            if not {field.name.lower() for field in missing} <= {field.name.lower() for field in table.schema().fields}:
                raise


def refuse_columns(output: Output, table: Table) -> None:
    """Raise Refused for a table that can't be written correctly, because of its partitions or its types."""
    for field in table.schema().fields:
        if _mistaken(field.field_type):
            raise _of_structs(output, field.name)
    _refuse_partitions(output, table)


def _mistaken(kind: types.IcebergType, *, inside: bool = False) -> bool:
    """Return whether a type is a list or a map with structs in it, or contains one.

    pyiceberg 0.12 writes and reads a null struct there as an empty one.
    """
    if isinstance(kind, types.StructType):
        return inside or any(_mistaken(field.field_type) for field in kind.fields)
    if isinstance(kind, types.ListType):
        return _mistaken(kind.element_type, inside=True)
    return isinstance(kind, types.MapType) and (
        _mistaken(kind.key_type, inside=True) or _mistaken(kind.value_type, inside=True)
    )


def _of_structs(output: Output, column: str) -> Refused:
    return Refused(
        f"{declared_at(output)}output {output.name}: column {column} has structs in a list or map, and pyiceberg "
        "writes one that is null as an empty one",
        data="nothing was written",
        hint="let the function give it as JSON text (to_json), or each part as a column",
    )


def _refuse_partitions(output: Output, table: Table) -> None:
    computed = [field for field in table.spec().fields if not isinstance(field.transform, IdentityTransform)]
    names = [f"{field.transform}({table.schema().find_column_name(field.source_id)})" for field in computed]
    if names:
        raise Refused(
            f"{declared_at(output)}output {output.name}: {'.'.join(table.name())} is partitioned by {names[0]}, and "
            "so far rows are written only to tables without partitions, or with columns as they are",
            data="nothing was written",
            hint="partition it by a column (identity), such as a date that the function gives; or leave its "
            "partitions out",
        )
    for field in table.spec().fields:
        kind = table.schema().find_type(field.source_id)
        if isinstance(
            kind, types.FloatType | types.DoubleType
        ):  # pyiceberg selects the rows of a partition by ==, for which 0.0 equals -0.0 and NaN does not equal NaN
            raise Refused(
                f"{declared_at(output)}output {output.name}: {'.'.join(table.name())} is partitioned by "
                f"{table.schema().find_column_name(field.source_id)}, a {kind}",
                data="nothing was written: rows with 0.0 and -0.0 would be there twice, and rows with NaN not at all",
                hint="partition it by a column of another type, or leave its partitions out",
            )
