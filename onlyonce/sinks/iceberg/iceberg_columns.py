"""The columns of an Iceberg table: make the table for a function's rows, add new columns, refuse what does not fit.

A change that a team makes during a run may be noticed only at the next start.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pyiceberg import types
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import types as spark

from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Output
from onlyonce.core import column_types
from onlyonce.core.errors import Refused
from onlyonce.sinks.iceberg import iceberg_catalogs

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
    given = {field.name.lower() for field in wanted.fields}
    if unwritten := [
        field.name for field in table.schema().fields if field.required and field.name.lower() not in given
    ]:
        raise Refused(
            f"{declared_at(output)}output {output.name}: {'.'.join(table.name())} requires the column "
            f"{unwritten[0]}, which the rows don't have",
            data="nothing was written",
            hint="let the function give it, or make the column optional there",
        )
    there = {field.name.lower() for field in table.schema().fields}
    missing = [field for field in wanted.fields if field.name.lower() not in there]
    if missing:
        _add(table, missing)


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
            f"{declared_at(output)}output {output.name}: {'.'.join(table.name())} is partitioned by {names[0]}, "
            "and so far rows are written only to tables without "
            "partitions, or with columns as they are",
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
