"""Removes old ids from the id catalog: raises an instance's floor, then drops the buckets below it.

docs/specification/id-catalog.md. The floor is stored first, so a batch that begins later does not ask for the dropped
buckets. A batch that has begun keeps its floor (`Chunks.ensure_bucket` reads it FOR SHARE). A bucket that a reader
still uses is left for the next time. It is below the floor, so no batch asks for it.
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
"""How long a drop waits for running look-ups, while new ones queue behind it. Look-ups are short, so it suffices."""


@dataclass(frozen=True)
class Bucket:
    """The table of a bucket that may be dropped. `detaching`: a user's DETACH CONCURRENTLY was not finished."""

    name: str
    bucket: int
    detaching: bool


@dataclass(frozen=True)
class Dropped:
    """What a dropped bucket held."""

    bucket: int
    chunks: int
    ids: int
    bytes: int


@dataclass(frozen=True)
class Run:
    """An instance of a pipeline. `ended`: all its lineages are closed, as those of a finished bounded run are."""

    instance: str
    pipeline: str
    ended: bool


class Collector(Transactions):
    """Removal of ids from the id catalog."""

    @one_transaction
    def instances(self) -> list[tuple[str, str]]:
        """Return (instance, pipeline) of all registered instances."""
        return [(row.instance, row.pipeline) for row in ask(self.connection, "collect", "instances")]

    @one_transaction
    def without_new_runs(self, work: Callable[[Scope], T]) -> T:
        """Do some work while no instance can be registered, so that none lists an inbox for the first time."""
        do(self.connection, "collect", "no_new_run")
        return work(self.connection)

    @one_transaction
    def runs(self, pipelines: list[str]) -> list[Run]:
        """Return all instances of some pipelines."""
        return [Run(*tuple(row)) for row in ask(self.connection, "collect", "runs", pipelines=pipelines)]

    @one_transaction
    def committed_cuts(self, instance: str, numbers: list[int], source: str | None = None) -> dict[int, dict[str, str]]:
        """Return the cuts of the inbox that an instance has committed, with the files that it could not read.

        `numbers`: the cuts, by their number in the registry. `source`: their source, in a pipeline with several.
        """
        rows = ask(
            self.connection, "collect", "committed_cuts", instance=instance, numbers=numbers, source=source or ""
        )
        return {row.batch_no: row.facts for row in rows}

    @one_transaction
    def near_horizon(self) -> list[gc.NearHorizon]:
        """Return the pipelines with duplicates near the edge of their dedup horizon, with both numbers of
        duplicates.
        """
        # One query for each instance: PostgreSQL uses an index for a given floor, and not for a joined one.
        found = (
            ask(self.connection, "collect", "near_horizon", instance=row.instance, floor=row.gc_floor)
            for row in ask(self.connection, "collect", "instances")
        )
        return [gc.NearHorizon(**row._mapping) for rows in found for row in rows]

    @one_transaction
    def raise_floor(self, instance: str, horizon: int) -> tuple[int, int]:
        """Decide on the floor and store it; return (before, after)."""
        before = int(ask(self.connection, "collect", "lock_floor", instance=instance)[0].gc_floor)
        rows = ask(self.connection, "collect", "known", instance=instance, floor=before)
        begun = [row for row in rows if row.state == "begun"]
        held = ask(self.connection, "collect", "held", instance=instance)[0].bucket
        newest = ask(self.connection, "collect", "newest", instance=instance)
        known = gc.Known(
            floor=before,
            committed=[row.bucket for row in rows if row.state == "committed"],
            uncommitted=[row.bucket for row in begun],
            begun_with=[row.begun_with for row in begun],
            unacknowledged=[] if held is None else [held],
            newest=newest[0].bucket if newest else None,
        )
        after = gc.floor(known, horizon)
        do(self.connection, "collect", "raise_floor", instance=instance, floor=after)
        return before, after

    @one_transaction
    def below_floor(self, instance: str) -> list[Bucket]:
        """Return the buckets that may be dropped, oldest first: those below the stored floor."""
        row = ask(self.connection, "catalog", "floor", instance=instance)[0]
        found = ask(
            self.connection,
            "collect",
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
        locks.wait(self.connection, stored_names.catalog_lock(instance))
        ask(self.connection, "collect", "short_wait", wait=SHORT_WAIT)
        size = ask(self.connection, "collect", "size", name=f"{stored_names.PRIVATE_SCHEMA}.{gone.name}")[0].bytes
        if size is None:
            return None
        if gone.detaching:
            parent = gone.name.rsplit("_", 1)[0]
            self._on("ALTER TABLE {parent} DETACH PARTITION {child} FINALIZE", parent=parent, child=gone.name)
        chunks, ids = self._on("SELECT count(*), coalesce(sum(id_count), 0)::bigint FROM {child}", child=gone.name)
        self._on("DROP TABLE {child}", child=gone.name)
        do(self.connection, "collect", "unlist", instance=instance, bucket=gone.bucket)
        return Dropped(gone.bucket, chunks, ids, size)

    def _on(self, statement: str, **tables: str) -> Any:
        names = {key: identifiers.Identifier(stored_names.PRIVATE_SCHEMA, name) for key, name in tables.items()}
        cursor = self.connection.connection.cursor()
        cursor.execute(identifiers.SQL(statement).format(**names))
        return cursor.fetchone() if cursor.description else None
