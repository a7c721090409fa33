"""Opens a Delta table at a location, a path or a URL. All of the product opens tables here, so that each gets its store's options. No JVM needed.

Who calls it: whoever reads or commits with delta-rs. Errors: those of delta-rs, TableNotFoundError among them.
"""

from __future__ import annotations

from deltalake import DeltaTable

from onlyonce.model.location import Location
from onlyonce.storage.stores import options


def table(at: Location, version: int | None = None) -> DeltaTable:
    """The table as it is now, or as of a version."""
    return DeltaTable(str(at), version=version, storage_options=options.of_delta(at))
