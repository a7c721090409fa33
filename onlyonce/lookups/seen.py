"""The tables that the functions of an output get, each as of one version. A run passes this value on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onlyonce.api.joins_and_state import Lookup
from onlyonce.core.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Version = dict[str, Any]
"""The version of one table in a batch's row, in `version` and `table`.

For Delta these are the version's number and the id that the table was made with. For PostgreSQL they are the number of
a copy and the hash of its content.
"""
Versions = dict[str, Version]
"""The versions of several tables, by the lookup's name."""


@dataclass(frozen=True)
class Seen:
    """For each lookup name, the table's version as stored in the batch's row, and the table's DataFrame."""

    versions: Versions = field(default_factory=dict)
    frames: Mapping[str, DataFrame] = field(default_factory=dict)


NOTHING = Seen()
"""The value for an output without lookups."""


def gone(lookup: Lookup, version: Version, why: str) -> Refused:
    """Return the error for a version that is needed and gone. The caller adds what to do next."""
    return Refused(
        f"lookup {lookup.name}: version {version['version']} of the table is gone: {why}", data="nothing was written"
    )
