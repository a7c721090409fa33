"""The tables that the functions of an output get, each as of one version. A value that a run hands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onlyonce.api.outputs import Lookup
from onlyonce.core.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Version = dict[str, Any]
"""What a batch row says of one table: of Delta `version`, its number, and `table`, the id that the table was made with;
of PostgreSQL `version`, the number of a copy, and `table`, the hash of what is in it."""
Versions = dict[str, Version]
"""The same by the lookup's name."""


@dataclass(frozen=True)
class Seen:
    """Tables by the lookup's name: their versions as a batch row has them, and as DataFrames."""

    versions: Versions = field(default_factory=dict)
    frames: Mapping[str, DataFrame] = field(default_factory=dict)


NOTHING = Seen()
"""Of an output without lookups."""


def gone(lookup: Lookup, version: Version, why: str) -> Refused:
    """What is said of a version that is needed and not there; who needs it adds the way out."""
    return Refused(
        f"lookup {lookup.name}: version {version['version']} of the table is gone: {why}", data="nothing was written"
    )
