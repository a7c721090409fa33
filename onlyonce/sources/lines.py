"""The lines of a batch, as a source gives them to receive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from onlyonce.model.sources.record_places import RecordPlaces
from onlyonce.sources.chosen import ALL, Chosen
from onlyonce.sources.files import line_reader

LINE = "oo_line string, oo_refused string, oo_file long, oo_position long"
"""With a reason it is no line but what could not be read; `oo_file` and `oo_position` are its place."""


@dataclass(frozen=True)
class Lines:
    """The lines of a batch: ranges of files, and rows like LINE, of messages or of what could not be read.

    Of a source with columns the rows have those. `chosen`: which of them are read. `shrinks`: whether the source may
    remove records that it has given out, without a loss, as a compacted topic does. `places` names where each of them
    is."""

    ranges: Sequence[line_reader.Range]
    rows: DataFrame | None
    chosen: Chosen = ALL
    shrinks: Callable[[], bool] = bool
    places: RecordPlaces = field(default_factory=RecordPlaces)
