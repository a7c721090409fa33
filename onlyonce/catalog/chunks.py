"""The chunks of the id catalog, written and read in the binary form of PostgreSQL's COPY.

In a statement a large value would be a string of twice its size. PostgreSQL and its client take four times as long for
15 MB in that form.

Source: PostgreSQL's documentation, COPY, "Binary Format".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import xxhash
from psycopg2 import sql as identifiers
from sqlalchemy import Connection, text

from onlyonce.catalog.filters import BYTES
from onlyonce.core import stored_names
from onlyonce.core.gc import BUCKET
from onlyonce.database import locks
from onlyonce.database.connect import Transactions, ask, do, one_transaction
from onlyonce.database.statements import queries

_BEGIN = b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0)
_SHORT, _SIZE = struct.Struct("!h"), struct.Struct("!i")
_END = _SHORT.pack(-1)
_NULL = struct.pack("!i", -1)

Value = bytes | None
"""A value in the binary form of its type; a `bytea` is its own. None is NULL."""


def int4(number: int) -> bytes:
    """Encode a value of an `int` column."""
    return struct.pack("!i", number)


def int8(number: int) -> bytes:
    """Encode a value of a `bigint` column."""
    return struct.pack("!q", number)


def copy(connection: Connection, file: str, query: str, rows: Iterable[Sequence[Value]]) -> None:
    """Send rows to a named COPY … FROM STDIN (FORMAT binary), in the open transaction."""
    connection.connection.cursor().copy_expert(queries(file)[query], BytesIO(b"".join(_parts(rows))))


def ask_binary(connection: Connection, file: str, query: str, /, **parameters: Any) -> list[list[Value]]:
    """Return the rows of a named query, by COPY … TO STDOUT (FORMAT binary), in the open transaction."""
    cursor, found = connection.connection.cursor(), BytesIO()
    asked = cursor.mogrify(str(text(queries(file)[query]).compile(connection)), parameters)
    cursor.copy_expert(b"COPY (" + asked + b") TO STDOUT (FORMAT binary)", found)
    return [*_rows(found.getbuffer())]


def number(value: Value) -> int:
    """Decode a value of an `int` or `bigint` column that is not NULL."""
    return int.from_bytes(value or b"", "big", signed=True)


def _rows(copied: memoryview) -> Iterator[list[Value]]:
    at = len(_BEGIN)
    while (columns := _SHORT.unpack_from(copied, at)[0]) >= 0:
        at, row = at + _SHORT.size, list[Value]()
        for _ in range(columns):
            (size,), at = _SIZE.unpack_from(copied, at), at + _SIZE.size
            row.append(None if size < 0 else bytes(copied[at : at + size]))
            at += max(size, 0)
        yield row


def _parts(rows: Iterable[Sequence[Value]]) -> Iterable[bytes]:
    yield _BEGIN
    for row in rows:
        yield struct.pack("!h", len(row))
        for value in row:
            yield _NULL if value is None else int4(len(value))
            yield value or b""
    yield _END


# The id catalog: for each receive unit the packed, sorted 128-bit hashes of the ids that it kept, and their filter.
#
# `gc` merges small chunks of committed batches into one (`core.gc.to_merge`), also while batches look up ids. A look-up
# that finds a listed chunk merged lists the chunks again.


BUCKET_SECONDS = int(BUCKET.total_seconds())
"""Ingestion time is cut into buckets of ten minutes."""


class ChunkKey(NamedTuple):
    """The position of a chunk: its bucket, and the receive unit that made it.

    A tuple, like a chunk: each batch lists a few hundred of them, and makes and hashes each.
    """

    bucket: int
    incarnation: str
    batch_id: int
    partition: int


class Chunk(NamedTuple):
    """A chunk as a look-up lists it: its key, its number of ids, and their hash.

    A chunk that was withdrawn may be made again with other ids, which the hash shows. Chunks of earlier versions have
    no hash.
    """

    key: ChunkKey
    id_count: int
    ids_hash: int | None

    @classmethod
    def of(cls, key: ChunkKey, packed: bytes) -> Chunk:
        """Return the chunk of these packed ids."""
        return cls(key, len(packed) // BYTES, ids_hash(packed))

    def is_of(self, packed: bytes) -> bool:
        """Return whether these are the chunk's packed ids."""
        return len(packed) == BYTES * self.id_count and self.ids_hash in (None, ids_hash(packed))


@dataclass(frozen=True)
class Place:
    """The coordinates of a receive unit, by which it asks and adds ids.

    instance      the instance whose ids are asked
    bucket        the bucket of the batch's arrival, to which its ids are added
    floor         the gc floor when the batch began: buckets below it are not asked, since they may be removed
    incarnation, batch_id, partition  of the unit
    partitions    how many partitions the batch has: a record's partition is the remainder of its id's upper half by it
    edge          how many buckets from the floor on count as near to it (`near_edge`); 0: none
    """

    instance: str
    bucket: int
    floor: int
    incarnation: str
    batch_id: int
    partition: int
    partitions: int
    edge: int = 0

    def near_edge(self, bucket: int) -> bool:
        """Return whether a bucket is within `edge` buckets of the floor, if any bucket was removed: it is removed
        soon.
        """
        return 0 < self.floor <= bucket < self.floor + self.edge

    @property
    def is_expired(self) -> bool:
        """Return whether the ids of this unit's bucket are removed, so that its duplicates can't be recognised."""
        return self.bucket < self.floor


@dataclass(frozen=True)
class KeptBatch:
    """A committed batch, and how many records of it are in `events`."""

    incarnation: str
    batch_id: int
    bucket: int
    partitions: int
    kept: int


@dataclass(frozen=True)
class LookUps:
    """Figures of a look-up in (id, chunk) pairs; all 0 if no chunk was asked.

    spared           the filter said no
    made             the filter said maybe, and the exact ids were read
    false_positives  of the pairs in `made`, those whose id was not in the chunk
    near             how many ids were found in buckets near the edge of the dedup horizon
    """

    spared: int = 0
    made: int = 0
    false_positives: int = 0
    near: int = 0


class Chunks(Transactions):
    """The chunks of the id catalog."""

    @one_transaction
    def visible(self, place: Place) -> list[Chunk]:
        """Return the chunks of earlier batches that can hold an id of this partition.

        Of this incarnation it lists only batches below this one, of other incarnations all batches. So a replay decides
        the same again, in whichever order the commit to Delta and the commit to the id catalog happened. A chunk of a
        batch with another number of partitions is listed if an id can be in both its partition and this one.
        """
        rows = ask(
            self.connection, "catalog", "chunks",
            instance=place.instance, floor=place.floor, incarnation=place.incarnation, batch_id=place.batch_id,
            partition=place.partition, partitions=place.partitions,
        )  # fmt: skip
        return [Chunk(ChunkKey(r.bucket, r.incarnation, r.batch_id, r.partition), r.id_count, r.ids_hash) for r in rows]

    @one_transaction
    def ids(self, instance: str, key: ChunkKey) -> bytes | None:
        """Return the packed ids of one chunk; None if it is gone because it was merged with others."""
        found = ask_binary(self.connection, "catalog", "ids", **_key(instance, key))
        return found[0][0] if found else None

    @one_transaction
    def in_bucket(self, instance: str, incarnation: str, bucket: int) -> list[bytes]:
        """Return the packed ids of an incarnation in a bucket, chunk by chunk."""
        rows = ask(self.connection, "catalog", "in_bucket", instance=instance, incarnation=incarnation, bucket=bucket)
        return [bytes(row.ids) for row in rows]

    @one_transaction
    def slices(self, instance: str, chunk: Chunk, starts: list[int], ends: list[int]) -> list[bytes] | None:
        """Return slices of the packed ids of a chunk; None if it was merged.

        starts, ends   numbers of ids, counted from 0: slice i has the ids from starts[i] to before ends[i]

        The chunk's number of ids is a part of the question: a merged chunk has the key of its last part, and more ids.
        PostgreSQL reads only the pages that hold the slices: the column is `STORAGE EXTERNAL` (out of line, not
        compressed).
        """
        rows = ask(
            self.connection,
            "catalog",
            "slices",
            id_count=chunk.id_count,
            starts=starts,
            ends=ends,
            **_key(instance, chunk.key),
        )
        return [bytes(row.part) for row in rows] if rows else None

    @one_transaction
    def filters(self, instance: str, keys: list[ChunkKey]) -> dict[ChunkKey, bytes | None]:
        """Return the stored filters of some chunks: None if one is missing, and no entry for a chunk that was
        merged.
        """
        found = ask_binary(
            self.connection, "catalog", "filters",
            instance=instance, buckets=[k.bucket for k in keys], incarnations=[k.incarnation for k in keys],
            batch_ids=[k.batch_id for k in keys], chosen=[k.partition for k in keys],
        )  # fmt: skip
        return {
            ChunkKey(number(bucket), (incarnation or b"").decode(), number(batch_id), number(partition)): stored
            for bucket, incarnation, batch_id, partition, stored in found
        }

    @one_transaction
    def repair_filter(self, instance: str, key: ChunkKey, bloom: bytes) -> None:
        """Store a filter that was made again, in place of a missing or damaged one."""
        do(self.connection, "catalog", "repair_filter", filter=bloom, **_key(instance, key))

    @one_transaction
    def add(self, place: Place, packed: bytes, bloom: bytes | None = None) -> None:
        """Add this unit's chunk, in the transaction of its claim."""
        row = (
            place.instance.encode(),
            int8(place.bucket),
            place.incarnation.encode(),
            int8(place.batch_id),
            int4(place.partition),
            int4(place.partitions),
            packed,
            int4(len(packed) // BYTES),
            bloom,
            int8(ids_hash(packed)),
        )
        copy(self.connection, "catalog", "add_chunk", [row])

    @one_transaction
    def replace_ids(self, instance: str, key: ChunkKey, packed: bytes, bloom: bytes) -> None:
        """Replace the ids of a chunk from which an erasure has removed some."""
        known = {"ids": packed, "id_count": len(packed) // BYTES, "ids_hash": ids_hash(packed), "filter": bloom}
        do(self.connection, "catalog", "replace_ids", **known, **_key(instance, key))

    @one_transaction
    def note_look_ups(self, unique_id: str, took: LookUps) -> None:
        """Note the figures of a unit's look-ups in the unit, in the transaction of its claim."""
        if took.spared or took.made:
            do(
                self.connection, "catalog", "note_look_ups",
                unique_id=unique_id, spared=took.spared, false_positives=took.false_positives, near=took.near,
            )  # fmt: skip

    @one_transaction
    def without_ids(self, instance: str) -> list[KeptBatch]:
        """Return the at-least-once batches whose ids are wanted and not yet in the id catalog."""
        rows = ask(self.connection, "catalog", "without_ids", instance=instance)
        return [KeptBatch(**row._mapping) for row in rows]

    @one_transaction
    def ids_added(self, incarnation: str, batch_id: int) -> bool:
        """Note that the ids of a batch are added, in their transaction. Return False if another driver has added
        them.
        """
        return bool(ask(self.connection, "catalog", "ids_added", incarnation=incarnation, batch_id=batch_id))

    @one_transaction
    def floor(self, instance: str) -> int:
        """Return the gc floor for a batch that keeps no ids, locked until the transaction ends."""
        return int(ask(self.connection, "catalog", "floor", instance=instance)[0].gc_floor)

    @one_transaction
    def ensure_bucket(self, instance: str, bucket: int) -> int:
        """Make the partition of a bucket before a batch needs it, and return the gc floor.

        Below the floor nothing is made: a batch there keeps no ids. The floor is locked until this transaction ends.
        CREATE and ATTACH pass running look-ups, while CREATE … PARTITION OF would wait for them.
        """
        row = ask(self.connection, "catalog", "floor", instance=instance)[0]
        parent = stored_names.catalog_table(row.instance_no)
        child = stored_names.bucket_table(row.instance_no, bucket)
        if bucket >= row.gc_floor and not self._exists(child):
            locks.wait(self.connection, stored_names.buckets_lock(instance))
            if not self._exists(parent):
                self._make(parent, "catalog_chunks", "FOR VALUES IN ({})", (instance,), "PARTITION BY RANGE (bucket)")
            if not self._exists(child):
                self._make(child, parent, "FOR VALUES FROM ({}) TO ({})", (bucket, bucket + 1), "")
        return int(row.gc_floor)

    def _exists(self, table: str) -> bool:
        found = self.connection.execute(
            text("SELECT to_regclass(:name) IS NOT NULL"), {"name": f"{stored_names.PRIVATE_SCHEMA}.{table}"}
        )
        return bool(found.scalar())

    def _make(self, child: str, parent: str, bounds: str, values: tuple[object, ...], by: str) -> None:
        cursor = self.connection.connection.cursor()
        names = {
            "child": identifiers.Identifier(stored_names.PRIVATE_SCHEMA, child),
            "parent": identifiers.Identifier(stored_names.PRIVATE_SCHEMA, parent),
            "bounds": identifiers.SQL(bounds).format(*[identifiers.Literal(v) for v in values]),
            "by": identifiers.SQL(by),
        }
        make = "CREATE TABLE {child} (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE) {by}"
        cursor.execute(identifiers.SQL(make).format(**names))
        cursor.execute(identifiers.SQL("ALTER TABLE {parent} ATTACH PARTITION {child} {bounds}").format(**names))


def ids_hash(packed: bytes) -> int:
    """Return the hash of a chunk's ids as a signed 64-bit integer, as PostgreSQL stores it."""
    return int.from_bytes(xxhash.xxh3_64_digest(packed), "big", signed=True)


def _key(instance: str, key: ChunkKey) -> dict[str, Any]:
    return {
        "instance": instance, "bucket": key.bucket, "incarnation": key.incarnation, "batch_id": key.batch_id,
        "partition": key.partition,
    }  # fmt: skip
