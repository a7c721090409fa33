"""The rows of `events`, or of a registry, for a reader without Spark: an Arrow dataset over its files.

delta-rs's own dataset reads through a file system written in Python. If a read stops early (the first rows of many),
its threads then wait for an interpreter that is ending: the process crashes at its exit, or never ends (deltalake 1.6.6
with pyarrow 26.0.1). Here Arrow reads the files itself.

Who calls it: `onlyonce trace`, `audit`, `release`, a rebuild of the catalog, the page's search, and what asks for
registered files. Errors: those of delta-rs. Not
promised: tables of others, whose paths may have characters that the Delta log escapes.
"""

from __future__ import annotations

import pyarrow.dataset as ds
from deltalake import DeltaTable

from onlyonce.model.storage.location import Location
from onlyonce.storage import opening
from onlyonce.storage.stores import arrow


def dataset(events: Location, table: DeltaTable | None = None) -> ds.Dataset:
    """The rows as of the table's version, by default its last."""
    return (table or opening.table(events)).to_pyarrow_dataset(filesystem=arrow.folder(events))
