"""Writes the data files of `events` of one task, by Arrow: one file for each kind of record that the task has.

Each attempt writes under names of its own, and tells of a file once it is on disk. The rows are in the table when the
driver's commit names the file (`own_tables`). Who calls it: `receive_task`. Errors: OSError, which fails the task, and
Spark tries it again. `onlyonce.storage.attempt_files` removes what a killed attempt has left.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from onlyonce.model import stored_names
from onlyonce.model.batch import to_time
from onlyonce.model.frontier import Frontier
from onlyonce.model.sources.record_places import RecordPlaces
from onlyonce.model.sources.tides import Turn, after_batch
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import OO_BATCH, OO_FRONTIER, OO_KIND, OO_LINEAGE, OO_PARTITION, OO_SYSTEM_TIME
from onlyonce.model.windows import Micros
from onlyonce.receive.blocks.exchange import CODE
from onlyonce.sources.parse.parse import PLACED
from onlyonce.sources.parse.plain_records import INSTANT
from onlyonce.storage import dictionaries
from onlyonce.storage.stores import arrow

FRONTIER = pa.struct([(name, INSTANT) for name in ("tide", "ended", "silent_tide", "silent_clock")])
HELD = stored_names.OO_BYTES.encode()
"""The entry of a file's footer that says how many bytes its rows take in memory: encoded rows may be a thousand times
smaller."""
ROWS, BYTES = 1 << 17, 1 << 26
"""A row group is written as soon as it has so many rows, or takes so much memory."""


@dataclass(frozen=True)
class Stamp:
    """What all records of a batch have alike."""

    system_time: datetime
    lineage: str
    batch_id: int
    frontier: Frontier
    turn: Turn | None = None
    places: RecordPlaces = field(default_factory=RecordPlaces)

    def after(self, largest: Micros | None) -> Frontier:
        """The frontier once the batch is committed, as far as a task knows that has kept this largest event time."""
        return after_batch(self.frontier, self.turn, largest)

    def columns(self, rows: int, partition: int, frontier: Frontier) -> dict[str, pa.Array]:
        """These as columns of so many rows."""
        known = {name: to_time(value) for name, value in asdict(frontier).items()}
        return {
            OO_SYSTEM_TIME: pa.repeat(pa.scalar(self.system_time, INSTANT), rows),
            OO_LINEAGE: pa.repeat(pa.scalar(self.lineage), rows),
            OO_BATCH: pa.repeat(pa.scalar(self.batch_id, pa.int64()), rows),
            OO_PARTITION: pa.repeat(pa.scalar(partition, pa.int32()), rows),
            OO_FRONTIER: pa.repeat(pa.scalar(known, FRONTIER), rows),
        }


class EventFiles:
    """Open files, as a context; at its end they are whole, and `paths` has their names."""

    def __init__(self, folder: Location, stamp: Stamp, partition: int) -> None:
        self.paths: list[str] = []
        self._folder, self._stamp, self._partition = folder, stamp, partition
        self._name = f"part-{partition:05}-{uuid4().hex}.parquet"
        self._open = ExitStack()
        self._writers: dict[str, parquet.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._alike: dict[Frontier, pa.RecordBatch] = {}

    def __enter__(self) -> EventFiles:
        return self

    def __exit__(self, *error: Any) -> None:
        with self._open:
            if error[0] is None:
                for kind in [*self._waiting]:
                    self._write(kind)
                for kind, file in self._writers.items():
                    note_bytes(file, self._held[kind])

    def add(self, kind: str, records: pa.RecordBatch, frontier: Frontier | None = None) -> None:
        """Records of one kind; a control row has a frontier of its own."""
        if not records.num_rows:
            return
        fixed = self._fixed(records.num_rows, frontier or self._stamp.frontier)
        given = {name: records.column(name) for name in records.schema.names if name not in (CODE, PLACED)}
        if kind == stored_names.INVALID:  # any other record is known by its id
            given[PLACED] = self._placed(records.column(PLACED))
        rows = pa.RecordBatch.from_pydict(given | dict(zip(fixed.schema.names, fixed.columns, strict=True)))
        waiting = self._waiting.setdefault(kind, [])
        waiting.append(rows)
        self._bytes[kind] = self._bytes.get(kind, 0) + rows.nbytes
        if self._bytes[kind] >= BYTES or sum(batch.num_rows for batch in waiting) >= ROWS:
            self._write(kind)

    def _placed(self, places: pa.StructArray) -> pa.Array:
        files, positions = places.flatten()
        coded = files.dictionary_encode()
        around = [self._stamp.places.around(file) for file in coded.dictionary.to_pylist()]
        before, after = (
            pa.array([one and one[side] for one in around], pa.string()).take(coded.indices) for side in (0, 1)
        )
        named = pc.binary_join_element_wise(before, positions.cast(pa.string()), after, "")
        whole = pc.fill_null(pc.less(positions, 0), False)  # a file, or a lost range: few, each with a form of its own
        few = [self._stamp.places.of(*one.values()) for one in places.filter(whole).to_pylist()]
        return pc.replace_with_mask(named, whole, pa.array([one and str(one) for one in few], pa.string()))

    def _fixed(self, rows: int, frontier: Frontier) -> pa.RecordBatch:
        """What all rows have alike, made once for the most rows that came so far."""
        made = self._alike.get(frontier)
        if made is None or made.num_rows < rows:
            made = self._alike[frontier] = pa.RecordBatch.from_pydict(
                self._stamp.columns(rows, self._partition, frontier)
            )
        return made.slice(0, rows)

    def _write(self, kind: str) -> None:
        rows, self._bytes[kind] = pa.Table.from_batches(self._waiting.pop(kind)), 0
        self._held[kind] = self._held.get(kind, 0) + rows.nbytes
        if kind not in self._writers:
            self._writers[kind] = self._opened(kind, rows)
        self._writers[kind].write_table(rows)

    def _opened(self, kind: str, first: pa.Table) -> parquet.ParquetWriter:
        path = self._folder / f"{OO_KIND}={kind}" / self._name
        # Zstandard takes the time of Snappy here, and two thirds of its space.
        repeated = dictionaries.worth_it(first)
        writer = arrow.writer(path, first.schema, use_dictionary=repeated, compression="zstd", store_schema=False)
        self.paths.append(str(path))
        return self._open.enter_context(writer)


def note_bytes(file: parquet.ParquetWriter, held: int) -> None:
    """Note in a file's footer how many bytes its rows take in memory."""
    file.add_key_value_metadata({HELD.decode(): str(held)})


def bytes_of(footer: parquet.FileMetaData) -> int | None:
    """Return how many bytes a file's rows take in memory; None if its footer does not say."""
    found = (footer.metadata or {}).get(HELD)
    return None if found is None else int(found)
