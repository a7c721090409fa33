"""Remove old ids from the id catalog: raise an instance's floor, then drop the buckets below it.

docs/specification/id-catalog.md. A gc run (`onlyonce gc`) calls `raise_floor`, `below_floor` and, for each bucket,
`drop`:

- The floor is stored first, so a batch that begins later does not read the buckets that are dropped.
- A batch that has begun keeps the floor that it was given (`Chunks.ensure_bucket` reads it FOR SHARE).
- A bucket that a reader still uses is dropped by a later gc run. No new batch reads it, since it is below the floor.

A gc run also moves files of an inbox to the archive once they are read (`operate.gc.archive_inputs`). The queries for
that are here too: `without_new_runs`, `runs` and `committed_cuts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg2 import sql as identifiers

from onlyonce.core import gc, stored_names
from onlyonce.database import locks
from onlyonce.database.connect import Scope, Transactions, ask, do, one_transaction

T = TypeVar("T")
SHORT_WAIT = "500ms"
"""How long a drop waits for running look-ups. New look-ups queue behind it meanwhile. Look-ups take less than this."""


@dataclass(frozen=True)
class Bucket:
    """The table of a bucket that may be dropped. `detaching`: a DETACH CONCURRENTLY by a user was not finished."""

    name: str
    bucket: int
    detaching: bool


@dataclass(frozen=True)
class Dropped:
    """The contents of a dropped bucket."""

    bucket: int
    chunks: int
    ids: int
    bytes: int


@dataclass(frozen=True)
class Run:
    """An instance of a pipeline: its stream or one of its bounded runs.

    `ended`: all its incarnations are closed, as after a bounded run has finished.
    """

    instance: str
    pipeline: str
    ended: bool


class Collector(Transactions):
    """The transactions of a gc run: those for the id catalog, and those for the archive of an inbox."""

    @one_transaction
    def instances(self) -> list[tuple[str, str]]:
        """Return (instance, pipeline) of all registered instances."""
        return [(row.instance, row.pipeline) for row in ask(self.connection, "gc", "instances")]

    @one_transaction
    def without_new_runs(self, work: Callable[[Scope], T]) -> T:
        """Do some work in a transaction in which no instance can be registered.

        The archive needs this: a new instance would list an inbox while its files are moved.
        """
        do(self.connection, "gc", "no_new_run")
        return work(self.connection)

    @one_transaction
    def runs(self, pipelines: list[str]) -> list[Run]:
        """Return all instances of some pipelines."""
        return [Run(*tuple(row)) for row in ask(self.connection, "gc", "runs", pipelines=pipelines)]

    @one_transaction
    def committed_cuts(self, instance: str, numbers: list[int], source: str | None = None) -> dict[int, dict[str, str]]:
        """Return which batches of files from an inbox an instance has committed, for the archive.

        numbers   the batches to ask for, by their number in the manifest of the inbox
        source    the source with this manifest, if the pipeline has several

        The result has, for each committed batch, the files that it could not read, each with the reason.
        """
        rows = ask(self.connection, "gc", "committed_cuts", instance=instance, numbers=numbers, source=source or "")
        return {row.batch_no: row.facts for row in rows}

    @one_transaction
    def near_horizon(self) -> list[gc.NearHorizon]:
        """Return the pipelines with duplicates near the edge of their dedup horizon, with both numbers of
        duplicates.
        """
        # One query for each instance: PostgreSQL uses an index for a given floor, and not for a joined one.
        found = (
            ask(self.connection, "gc", "near_horizon", instance=row.instance, floor=row.gc_floor)
            for row in ask(self.connection, "gc", "instances")
        )
        return [gc.NearHorizon(**row._mapping) for rows in found for row in rows]

    @one_transaction
    def raise_floor(self, instance: str, horizon: int) -> tuple[int, int]:
        """Compute the new floor of an instance (`gc.floor`) and store it; return the old floor and the new one.

        `horizon`: the dedup horizon in buckets. The row of the instance is locked meanwhile.
        """
        before = int(ask(self.connection, "gc", "lock_floor", instance=instance)[0].gc_floor)
        rows = ask(self.connection, "gc", "known", instance=instance, floor=before)
        begun = [row for row in rows if row.state == "begun"]
        held = ask(self.connection, "gc", "held", instance=instance)[0].bucket
        newest = ask(self.connection, "gc", "newest", instance=instance)
        known = gc.Known(
            floor=before,
            committed=[row.bucket for row in rows if row.state == "committed"],
            uncommitted=[row.bucket for row in begun],
            begun_with=[row.begun_with for row in begun],
            unacknowledged=[] if held is None else [held],
            newest=newest[0].bucket if newest else None,
        )
        after = gc.floor(known, horizon)
        do(self.connection, "gc", "raise_floor", instance=instance, floor=after)
        return before, after

    @one_transaction
    def below_floor(self, instance: str) -> list[Bucket]:
        """Return the buckets that may be dropped, oldest first: those below the stored floor."""
        row = ask(self.connection, "catalog", "floor", instance=instance)[0]
        found = ask(
            self.connection,
            "gc",
            "buckets_below",
            parent=stored_names.catalog_table(row.instance_no),
            floor=row.gc_floor,
        )
        return [Bucket(r.name, r.bucket, r.detaching) for r in found]

    @one_transaction
    def drop(self, instance: str, gone: Bucket) -> Dropped | None:
        """Drop one bucket, whatever it holds. Return None if another gc run was faster.

        Raise Retryable (from `connect.run`) if a reader holds the bucket for longer than `SHORT_WAIT`.
        """
        # No merge, erasure or other gc run changes chunks meanwhile.
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        ask(self.connection, "gc", "short_wait", wait=SHORT_WAIT)
        size = ask(self.connection, "gc", "size", name=f"{stored_names.PRIVATE_SCHEMA}.{gone.name}")[0].bytes
        if size is None:
            return None
        if gone.detaching:
            parent = gone.name.rsplit("_", 1)[0]
            self._on("ALTER TABLE {parent} DETACH PARTITION {child} FINALIZE", parent=parent, child=gone.name)
        chunks, ids = self._on("SELECT count(*), coalesce(sum(id_count), 0)::bigint FROM {child}", child=gone.name)
        self._on("DROP TABLE {child}", child=gone.name)
        # The list of chunks that look-ups read.
        do(self.connection, "gc", "unlist", instance=instance, bucket=gone.bucket)
        return Dropped(gone.bucket, chunks, ids, size)

    def _on(self, statement: str, **tables: str) -> Any:
        names = {key: identifiers.Identifier(stored_names.PRIVATE_SCHEMA, name) for key, name in tables.items()}
        cursor = self.connection.connection.cursor()
        cursor.execute(identifiers.SQL(statement).format(**names))
        return cursor.fetchone() if cursor.description else None
