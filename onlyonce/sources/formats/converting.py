"""What the declaration wants of messages, and how columns of a schema are fitted to it: by the rules of `coercion`, as
for files.

Who calls it: the converters of each format. Errors: Damaged, with the column and both types, or what Arrow says of a
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from onlyonce.model.record_size import Damaged
from onlyonce.sources.parse import coercion


@dataclass(frozen=True)
class Columns:
    """The wanted columns of some messages, and the names of those that are not declared."""

    batch: pa.RecordBatch
    rest: str | None


@dataclass(frozen=True)
class Wanted:
    """The declared columns that come from a part of the message, and which of them must be there.

    `elsewhere`: those that come from another part, whatever this one has under their names."""

    fields: tuple[pa.Field, ...]
    needed: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Of the columns."""
        return pa.schema(self.fields)

    def alone(self) -> str:
        """The one column of messages that are no records. Raises Damaged."""
        if len(self.fields) != 1:
            raise Damaged("its values are not records")
        return self.fields[0].name

    def found(self, there: Iterable[str]) -> list[str]:
        """Those of the columns that are wanted."""
        declared = {field.name for field in self.fields}
        return [name for name in there if name in declared]

    def check(self, there: Mapping[str, pa.DataType]) -> None:
        """Raises Damaged where a column is missing without which no record can be known, or is of a type that does not
        fit."""
        coercion.check_names([*there], self.needed)
        for field in self.fields:
            if field.name in there:
                _cast(pa.array([], there[field.name]), field)

    def fitted(self, found: Mapping[str, pa.Array], rows: int, there: Iterable[str]) -> Columns:
        """The columns as they are declared; one that is not there is null."""
        columns = [_cast(found[f.name], f) if f.name in found else pa.nulls(rows, f.type) for f in self.fields]
        within = coercion.undeclared_within(
            pa.schema([(name, column.type) for name, column in found.items()]), self.schema
        )
        known = {*(field.name for field in self.fields), *self.elsewhere}
        return Columns(
            pa.RecordBatch.from_arrays(columns, schema=self.schema), coercion.undeclared([*there, *within], known)
        )


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return coercion.cast(array, field)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Damaged(f"column {field.name} is {array.type}, which does not fit the declared {field.type}") from error
