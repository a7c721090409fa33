"""Which versions of its lookups an output's batch sees. The batch row stores them; docs/specification/lookups.md.

A query is started with one version of each table. If the log has the batch that Spark will run first, its row names the
versions: that batch is tried again, or its rows are consumed again. Otherwise the newest versions are used. If a table
has a newer version before a later batch of the same start begins, the query ends and starts again. A backfill reads the
versions that its windows saw, or the newest: `backfill_windows.lookup_parts_of`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from itertools import count

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import Output
from onlyonce.commitlog.ends import SeenLookups
from onlyonce.context import OnBatch, Query, RunContext
from onlyonce.core import stored_names
from onlyonce.lookups import tables
from onlyonce.lookups.seen import Versions
from onlyonce.outputs.events import Again
from onlyonce.tables import checkpoint

LONG_AGO = timedelta(hours=1)


def versions_of_next_batch(context: RunContext, query: Query, root: Output) -> RunContext:
    """Return the context in which the functions get the tables as the query's next batch must see them.

    Raise Refused for a version that is gone, or for a table with a key twice.
    """
    lookups = context.pipeline.lookups(root)
    if not lookups:
        return context
    number = 0 if context.bounded else checkpoint.last(query.folder, "commits") + 1
    rows = SeenLookups(query.database).near(query.incarnation, number)
    hash, row = context.declaration_hash(root.name), rows.get(number)
    # Under another declaration the batch is refused, or begins again: the lookup may be another table.
    fixed: Versions = row.lookups if row and row.declaration_hash == hash else {}
    _refuse_gone(context, query, root, fixed, number)
    versions = tables.newest({name: lookup for name, lookup in lookups.items() if name not in fixed}, root) | fixed
    if versions == context.seen.versions:
        return context
    seen = tables.as_of(context.spark, lookups, versions)
    before = rows.get(number - 1)
    checked = before.lookups if before and before.declaration_hash == hash else fixed
    # Keys of versions that the batch before has seen were checked then.
    tables.check_keys({name: lookups[name] for name in lookups if checked.get(name) != versions[name]}, seen)
    query.log.info(
        "lookups",
        batch=number,
        versions={name: version[stored_names.LOOKUP_VERSION] for name, version in versions.items()},
    )
    return replace(context, seen=seen)


def versions_as_begun(context: RunContext, query: Query, root: Output, versions: Versions, number: int) -> RunContext:
    """Return the context for a batch that has begun: the functions get the tables as its row says."""
    lookups = context.pipeline.lookups(root)
    _refuse_gone(context, query, root, versions, number)
    return replace(context, seen=tables.as_of(context.spark, lookups, versions))


def watched_lookups(context: RunContext, root: Output, on_batch: OnBatch) -> OnBatch:
    """Return the work of a batch of a query that was started with these versions.

    Before any batch except the first, raise Again if a table has a newer version. Nothing of that batch has begun, so
    it is the first of the next start. A first batch long after the start is treated the same. The log does not name the
    versions yet, and gc removes versions that the log does not name.
    """
    lookups, begun, started = context.pipeline.lookups(root), count(), time.monotonic()

    def work(frame: DataFrame, batch_id: int) -> None:
        first = next(begun) == 0 and time.monotonic() - started < LONG_AGO.total_seconds()
        if not first and lookups and tables.newest(lookups, root) != context.seen.versions:
            raise Again("a lookup has a newer version: the query is started again with it")
        on_batch(frame, batch_id)

    return work


def _refuse_gone(context: RunContext, query: Query, root: Output, versions: Versions, number: int) -> None:
    lookups = context.pipeline.lookups(root)
    batch = f"{query.incarnation}/{number}"
    hint = (
        f"batch {batch} has begun with it, and must see the same again: bring that version of the table back; or give "
        f"the batch up and begin a new incarnation: onlyonce reset {query.incarnation.rsplit('/', 1)[0]}"
    )
    tables.refuse_gone({name: lookups[name] for name in versions}, versions, hint)
