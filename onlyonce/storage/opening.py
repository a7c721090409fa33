"""Opens a Delta table at a location, a path or a URL. All of the product opens tables here, so that each gets its store's options. No JVM needed.

Who calls it: whoever reads or commits with delta-rs. Errors: those of delta-rs, TableNotFoundError among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from onlyonce.model.errors import Retryable
from onlyonce.model.storage.location import Location
from onlyonce.storage.stores import options


def table(at: Location, version: int | None = None) -> DeltaTable:
    """The table as it is now, or as of a version."""
    return DeltaTable(str(at), version=version, storage_options=options.of_delta(at))


def form(table: DeltaTable) -> str:
    """Return what a writer must know of a version of a table: its schema, partition columns, properties and protocol."""
    metadata = table.metadata()
    return str((table.schema().to_json(), metadata.partition_columns, sorted(metadata.configuration.items()), table.protocol()))


def refuse_changed(table: DeltaTable, at: Location, checked: str) -> None:
    """Raise Retryable if a table no longer has the form in which it was checked: what was written for it may not fit."""
    if form(table) != checked:
        raise Retryable(
            f"{at}: the schema, the partition columns, the properties or the protocol of the table changed while a batch was written",
            data="nothing of this batch is in the table",
            hint="run the same command again: it checks the batch against the table as it is now",
        )


def make(at: Location, schema: str, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """Make an empty table, unless somebody has: of those who do at once one does. `schema`: as Delta's log has it, which is as Spark has it."""
    try:
        DeltaTable.create(
            str(at), Schema.from_json(schema), mode="ignore", partition_by=list(partition_by), configuration=dict(properties),
            storage_options=options.of_delta(at), raise_if_key_not_exists=False,
        )  # fmt: skip
    except DeltaError:
        table(at)  # raises where there is none


def set_property(at: Location, key: str, value: str) -> None:
    """Set a property of a table that Delta itself does not know. Raises DeltaError for a table that deltalake can't change."""
    table(at).alter.set_table_properties({key: value}, raise_if_not_exists=False)


def add_columns(at: Location, schema: str) -> None:
    """Add columns at the end of a table. Raises DeltaError, also where another adds them just now."""
    table(at).alter.add_columns(list(Schema.from_json(schema).fields))
