"""Rows of `events` are removed: their files go from the table, and what else a file holds is written into a new one,
all in one commit.

The commit says of each file that it changes no data (`dataChange` false), as a compaction does: a stream of Spark's
over the table passes it by. So only rows may go that no stream is still to read. The old files stay on the disk for
readers under way, and `attempt_files` sweeps them.

Who calls it: `onlyonce.operate.compact.retention`, `onlyonce.operate.erase.records`. Errors: those of `rewriting`. Not
promised: that it happens; where another writer has taken one of the files meanwhile, nothing does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.failpoints import passing
from onlyonce.model.storage import attempts
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import CONTROL, OO_BATCH, OO_KIND, OO_LINEAGE
from onlyonce.storage import rewriting
from onlyonce.storage.rewriting import File

KEYS = (OO_LINEAGE, OO_BATCH, OO_KIND)

Gone = Callable[[pa.Table], pa.Array]
"""Which rows go, given rows with the columns that it asks for."""


@dataclass(frozen=True)
class Cut:
    """A file with rows that go: how many by life of receive, batch and fate, and how many stay."""

    file: File
    counts: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    stay: int = 0


def of_batches(rows: pa.Table, last: Mapping[str, int]) -> pa.Array:
    """Which rows are of these lives of receive, each up to a batch."""
    batches = (
        pc.and_(pc.equal(rows.column(OO_LINEAGE), lineage), pc.less_equal(rows.column(OO_BATCH), number))
        for lineage, number in sorted(last.items())
    )
    return reduce(pc.or_, batches, pa.scalar(False))


def cut(path: Location, file: File, columns: Sequence[str], gone: Gone) -> Cut | None:
    """What of a file goes; None where nothing does.

    Only these columns are read, and those that count. Control rows stay.
    """
    rows = _with_kind(file, rewriting.read(path, [file], [*KEYS, *columns]))
    going = rows.filter(_mask(rows, gone))
    if not going.num_rows:
        return None
    groups = going.select(list(KEYS)).group_by(list(KEYS)).aggregate([([], "count_all")]).to_pylist()
    counts = Counter({tuple(group[key] for key in KEYS): group["count_all"] for group in groups})
    return Cut(file, counts, rows.num_rows - going.num_rows)


def remove(path: Location, cuts: Sequence[Cut], gone: Gone, app_id: str, number: int) -> bool:
    """Remove these rows in one commit; False where another writer was first, and nothing has changed."""
    folder = path / attempts.folder(app_id, number, uuid4().hex)
    new = [
        rewriting.write(folder, one.file.partition, place, _left(path, one.file, gone))
        for place, one in enumerate(cuts)
        if one.stay
    ]
    passing("remove-before-commit")
    done = rewriting.replace(path, [one.file for one in cuts], new, app_id, number)
    passing("remove-after-commit")
    if not done:
        rewriting.clear(folder)
    return done


def _left(path: Location, file: File, gone: Gone) -> pa.Table:
    rows = rewriting.read(path, [file])
    return rows.filter(pc.invert(_mask(_with_kind(file, rows), gone)))


def _mask(rows: pa.Table, gone: Gone) -> pa.Array:
    return pc.and_(pc.fill_null(gone(rows), False), pc.not_equal(rows.column(OO_KIND), CONTROL))


def _with_kind(file: File, rows: pa.Table) -> pa.Table:
    if OO_KIND in rows.column_names:
        return rows
    return rows.append_column(OO_KIND, pa.repeat(pa.scalar(file.partition[OO_KIND]), rows.num_rows))
