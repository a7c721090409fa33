"""What a platform of so many batches has, made in bulk as the hourly collection and `maintain` would have left it.

The rows of the log, with its sums; a day of the catalog, one chunk for each bucket and partition; `events` in large
files; a day of entries of its Delta log behind a checkpoint. Who calls it: `age`.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psycopg2
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.locations import Location, on_disk
from onlyonce.database.connect import Database, do, run
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import own_tables
from onlyonce.tables.commit import Appended
from tests.benchmarks.growth import uniform

EACH, A_BUCKET, A_DAY = 20, 10, 1440
"""Records of a batch; batches of ten minutes and of a day: one a minute."""
START = datetime(2025, 1, 1, tzinfo=UTC)
IN_A_FILE = 1_000_000

# The log after `upto` batches of receive, as it is kept: each batch, its units, and the sums when they are folded.
LOG = """
INSERT INTO onlyonce_private.batches
    (incarnation, batch_id, epoch, run_id, source_from, source_to, offsets_hash, partitions, max_event_time, ingestion_time, bucket, gc_floor, settings, mode,
     declaration_hash, state, begun_at, committed_at, conserved, max_event_time_after, delta_version, read, kept, invalid, expired, duplicate,
     unknown_fields, lookups_spared)
SELECT %(incarnation)s, n, 1, 'run ' || n, CASE WHEN n > 0 THEN jsonb_build_object('reservoirVersion', n, 'index', -1, 'batch_no', n - 1, 'lines', 20) END,
       jsonb_build_object('reservoirVersion', n + 1, 'index', -1, 'batch_no', n, 'lines', 20), 'hash ' || n, 2, t.at - interval '1 minute',
       t.at, extract(epoch FROM t.at)::bigint / 600, 0, '{"spark.sql.shuffle.partitions": "2"}', 'exactly_once', 'd1', 'committed', t.at, t.at, true,
       t.at, n + 1, 20, 20, 0, 0, 0, 0, 1000
FROM generate_series(%(first)s, %(upto)s - 1) n, LATERAL (SELECT timestamptz '2025-01-01Z' + n * interval '1 minute' AS at) t;
INSERT INTO onlyonce_private.units
    (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind, rows, content_hash, kept, invalid, expired, duplicate, lookups_spared)
SELECT %(incarnation)s || '/' || n || '/events/' || p, %(incarnation)s, n, 'events', p, 1, 'driver', 'reference', 10, repeat('0', 32), 10, 0, 0, 0, 500
FROM generate_series(%(first)s, %(upto)s - 1) n, generate_series(0, 1) p;
ANALYZE;
"""


def log(url: str, driver: Driver, first: int, upto: int) -> None:
    """The log's rows of the batches from the first on."""
    with psycopg2.connect(url.replace("+psycopg2", "")) as session, session.cursor() as cursor:
        cursor.execute(LOG, {"incarnation": driver.incarnation, "first": first, "upto": upto})


def catalog_of(database: Database, driver: Driver, upto: int) -> None:
    """The last day of ids."""
    bucket_of = [int((START + timedelta(minutes=n)).timestamp()) // catalog.BUCKET_SECONDS for n in (0, upto - 1)]
    floor = max(bucket_of[0], bucket_of[1] - 144)
    run(database, lambda conn: do(conn, "gc", "raise_floor", instance="shop", floor=floor))
    made = np.random.default_rng(upto)
    for bucket in range(floor, bucket_of[1] + 1):
        Chunks(database).ensure_bucket("shop", bucket)  # type: ignore[misc]
        last = min(upto - 1, (bucket + 1 - bucket_of[0]) * A_BUCKET - 1)
        for partition in range(2):
            ids = uniform(made, A_BUCKET * EACH // 2, partition)
            place = catalog.Place("shop", bucket, floor, driver.incarnation, last, partition, 2)
            Chunks(database).add(place, filters.pack(ids), filters.make(ids))  # type: ignore[misc]


def events_of(events: Path, driver: Driver, upto: int) -> None:
    """The table after so many batches, in files like that of the first one."""
    table = DeltaTable(str(events))
    like = {Path(file).parent.name: Path(file) for file in table.file_uris()}

    def write(folder: Location) -> list[Location]:
        return [
            path
            for kind, each in (("oo_kind=kept", EACH), ("oo_kind=control", 2))
            for path in _many(parquet.read_table(like[kind], partitioning=None), upto * each, on_disk(folder) / kind)
        ]

    commit = tables_commit.Commit(
        f"{driver.incarnation}/events", upto - 1, f"{driver.incarnation}/{upto - 1}/events", driver.epoch, ""
    )
    own_tables.append(write, Appended(events), commit)
    DeltaTable(str(events)).create_checkpoint()
    _renumber(events / "_delta_log", upto)


def _many(rows: pa.Table, count: int, folder: Path) -> list[Path]:
    """Files of so many rows in all, like some, each id and time once."""
    folder.mkdir(parents=True)
    made, found = np.random.default_rng(count), []
    for first in range(0, count, IN_A_FILE):
        size = min(IN_A_FILE, count - first)
        part = rows.take(pa.array(np.arange(size) % rows.num_rows))
        values = {
            "oo_high": pa.array(made.integers(-(2**63), 2**63, size, dtype=np.int64)),
            "oo_batch": pa.array(np.arange(first, first + size) * (first + size) // count, pa.int64()),
        }
        for name, value in values.items():
            if name in part.schema.names:
                part = part.set_column(part.schema.get_field_index(name), name, value)
        found.append(folder / f"bulk-{first}.parquet")
        parquet.write_table(part, found[-1], compression="zstd", use_dictionary=False, store_schema=False)
    return found


def _renumber(log: Path, version: int) -> None:
    """The last version of a Delta log becomes a later one, with the entries of a day before it, as `maintain` leaves
    them."""
    last = json.loads((log / "_last_checkpoint").read_text())
    old, entry = last["version"], (log / f"{1:020}.json").read_bytes()  # that of the first batch, which is real
    for suffix in ("json", "checkpoint.parquet"):
        (log / f"{old:020}.{suffix}").rename(log / f"{version:020}.{suffix}")
    now = time.time()
    for before in range(max(version - A_DAY, old + 1), version):
        (log / f"{before:020}.json").write_bytes(entry)
        os.utime(
            log / f"{before:020}.json", (now - 60 * (version - before),) * 2
        )  # a batch a minute: a collection cuts the log by that
    for file in log.iterdir():
        if file.name.startswith("0") and int(file.name[:20]) < version - A_DAY:
            file.unlink()
    (log / "_last_checkpoint").write_text(json.dumps(last | {"version": version}))
