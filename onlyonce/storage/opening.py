"""Opens a Delta table at a location, a path or a URL.

All of the product opens tables here, so that each gets its store's options. No JVM needed.

Errors: those of delta-rs, TableNotFoundError among them; Refused for a table with a feature that delta-rs can't read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.sinks import owner
from onlyonce.model.storage.location import Location
from onlyonce.storage import table_features
from onlyonce.storage.stores import options

UNSUPPORTED = re.compile(r"Feature '(\w+)' is not supported")


def table(at: Location, version: int | None = None) -> DeltaTable:
    """Return the table as it is now, or as of a version."""
    try:
        return DeltaTable(str(at), version=version, storage_options=options.of_delta(at))
    except DeltaError as error:
        if feature := _feature(str(error)):
            [name] = table_features.named({feature})
            raise Refused(
                f"{at} has {name}, which is not read here",
                data="nothing was read from it or written to it",
                hint="take that off the table, or name another path. docs/reference/delta-tables.md has what each "
                "table may have",
            ) from error
        raise


def _feature(message: str) -> str | None:
    """Return the feature because of which delta-rs refuses to open a table. None if it refuses for another reason."""
    if "catalog-managed" in message:
        return "catalogManaged"
    found = UNSUPPORTED.search(message)
    return found[1] if found else None


class Form(NamedTuple):
    """What a writer must know of a version of a table: which table it is, and its schema, partition columns, properties
    and protocol."""

    table_id: str
    described: str


def form(table: DeltaTable) -> Form:
    """Return the form of a version of a table."""
    metadata = table.metadata()
    described = str(
        (table.schema().to_json(), metadata.partition_columns, sorted(metadata.configuration.items()), table.protocol())
    )
    return Form(str(metadata.id), described)


def refuse_changed(table: DeltaTable, at: Location, checked: Form) -> None:
    """Raise Retryable if a table no longer has the form in which it was checked: what was written for it may not fit.

    Raise Refused for another table.
    """
    found = form(table)
    owner.refuse_replaced(str(at), checked.table_id, found.table_id)
    if found != checked:
        raise Retryable(
            f"{at}: the schema, the partition columns, the properties or the protocol of the table changed while a "
            "batch was written",
            data="nothing of this batch is in the table",
            hint="run the same command again: it checks the batch against the table as it is now",
        )


def make(at: Location, schema: str, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """Make an empty table, unless somebody has: of those who do at once one does.

    `schema`: as Delta's log has it, which is as Spark has it.
    """
    try:
        DeltaTable.create(
            str(at),
            Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties),
            storage_options=options.of_delta(at),
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        table(at)  # raises where there is none


def set_property(at: Location, key: str, value: str) -> None:
    """Set a property of a table that Delta itself does not know.

    Raises DeltaError for a table that deltalake can't change.
    """
    table(at).alter.set_table_properties({key: value}, raise_if_not_exists=False)


def add_columns(at: Location, schema: str) -> None:
    """Add columns at the end of a table. Raises DeltaError, also where another adds them just now."""
    table(at).alter.add_columns(list(Schema.from_json(schema).fields))
