"""The records of `events` that an erasure means, and their removal. No Spark.

Who calls it: `forget`. Errors: DeltaError, OSError and ArrowException where the table can't be read or written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.commitlog.operate import removals
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.operate.erasures import Erasure
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.operate.erasing import Condition
from onlyonce.model.storage import attempts
from onlyonce.model.storage.location import Location, below
from onlyonce.model.stored_names import (
    CONTROL,
    KEPT,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_HIGH,
    OO_KIND,
    OO_LINEAGE,
    OO_LOW,
    OO_RAW,
    OO_REASON,
)
from onlyonce.model.values import line_values
from onlyonce.operate.erase import input_files, source_conditions
from onlyonce.storage import attempt_files, delta, event_rows, log_entries, opening, removing, rewriting, stores
from onlyonce.storage.removing import Cut, Gone

FOUND = [OO_KIND, OO_HIGH, OO_LOW, OO_EVENT_TIME, OO_LINEAGE, OO_BATCH]


@dataclass(frozen=True)
class Records:
    """What `events` has of them: rows by fate, their ids (high, low), the event times of those that were kept, and
    (life of receive, batch) of each."""

    fates: Counter[str] = field(default_factory=Counter)
    ids: list[tuple[int, int]] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    batches: set[tuple[str, int]] = field(default_factory=set)


def found(path: Location, pipeline: Pipeline, condition: Condition) -> Records:
    """The records that are meant, wherever they are in the table."""
    gone, records = meant(pipeline, condition), Records()
    if not delta.exists(path):
        return records
    for part in event_rows.dataset(path).to_batches(columns=[*FOUND, *_asked(path, condition)]):
        rows = pa.Table.from_batches([part])
        for row in rows.filter(gone(rows)).select(FOUND).to_pylist():
            records.fates[row[OO_KIND]] += 1
            records.batches.add((row[OO_LINEAGE], row[OO_BATCH]))
            if row[OO_KIND] == KEPT:
                records.ids.append((row[OO_HIGH], row[OO_LOW]))
                records.times.append(row[OO_EVENT_TIME])
    return records


def remove(
    database: Database, instance: str, path: Location, pipeline: Pipeline, condition: Condition, erasure: Erasure
) -> None:
    """Remove those of the batches that no stream reads again, in one commit, counted by batch and fate before it.

    Their files leave the disk at once.
    """
    app_id = stored_names.housekeeping(instance, stored_names.RETENTION_BY)
    last = Compactions(database).last_in(instance, erasure.upto)
    by_value = meant(pipeline, condition)

    def gone(rows: pa.Table) -> pa.Array:
        return pc.and_(by_value(rows), removing.of_batches(rows, last))

    while (delta.version(path, app_id) or 0) < erasure.number:
        cuts = _cuts(path, condition, gone)
        if not cuts:
            break
        counts: removals.Counts = sum((cut.counts for cut in cuts), Counter())
        Removals(database).count(instance, erasure.removal, counts, len(cuts))
        passing("forget-after-count")
        removing.remove(path, cuts, gone, app_id, erasure.number)
    passing("forget-before-sweep")
    attempt_files.sweep(instance, 0, [])
    _sweep(path)


def _sweep(path: Location) -> None:
    """Take away data files that the table does not have and that lie in no attempt's folder: of an older version."""
    named = set(opening.table(path).get_add_actions(flatten=True).column("path").to_pylist())
    store = stores.of(path)
    for file in [entry.at for entry in store.entries(path) if entry.at.name.endswith(".parquet")]:
        place = below(file, path)
        if place.parts[0] != log_entries.LOG and not attempts.read(place.parts[0]) and str(place) not in named:
            store.delete(file)


def meant(pipeline: Pipeline, condition: Condition) -> Gone:
    """Rows by the values of their columns; an invalid one by its line."""
    # The line of an invalid record does not say which of several sources it is of.
    mentions = source_conditions.mentions(pipeline, condition)
    lines_of = [
        (asked, input_files.csv_columns(source))
        for source, asked, _ in source_conditions.of(pipeline, condition)
        if asked
    ]

    def mask(rows: pa.Table) -> pa.Array:
        none = pa.repeat(pa.scalar(False), rows.num_rows)
        there = set(condition.values) <= set(rows.column_names)
        by_column = (pc.equal(rows.column(name).cast(pa.string()), value) for name, value in condition.values.items())
        kept = reduce(pc.and_, by_column) if there else none
        raw, reasons = rows.column(OO_RAW), rows.column(OO_REASON)
        lines = np.zeros(rows.num_rows, dtype=bool)
        for at in pc.indices_nonzero(pc.is_valid(raw)).to_pylist():  # invalid ones only
            line = _line(raw[at].as_py(), reasons[at].as_py())
            lines[at] = mentions.in_message(line.decode("latin-1")) or any(
                asked.fits_bytes(line, columns) for asked, columns in lines_of
            )
        either = pc.or_(pc.fill_null(kept, False), pa.array(lines))
        return pc.and_(either, pc.not_equal(rows.column(OO_KIND), CONTROL))

    return mask


def _line(raw: str, reason: str) -> bytes:
    """Return an invalid line as an input file has it. A line that is not UTF-8 is in `events` in hexadecimal."""
    return bytes.fromhex(raw) if reason.startswith(line_values.NOT_UTF8) else raw.encode("utf-8", "surrogatepass")


def _cuts(path: Location, condition: Condition, gone: Gone) -> list[Cut]:
    table, asked = opening.table(path), _asked(path, condition)
    files = [file for file in rewriting.files(table, [OO_EVENT_TIME]) if file.partition.get(OO_KIND) != CONTROL]
    cuts = (removing.cut(path, file, asked, gone) for file in files)
    return [cut for cut in cuts if cut]


def _asked(path: Location, condition: Condition) -> list[str]:
    there = {one.name for one in opening.table(path).schema().fields}
    return [OO_RAW, OO_REASON, *(name for name in condition.values if name in there)]
