"""A log as it is after many batches, made by a few statements: for tests of what is asked of a platform that is years
old."""

from __future__ import annotations

import psycopg2

INSTANCE, OUTPUT = "shop", "per_minute"
RECEIVE, STREAM = f"{INSTANCE}/receive/2", f"{INSTANCE}/{OUTPUT}/2"
OLD_RECEIVE, OLD_STREAM = f"{INSTANCE}/receive/1", f"{INSTANCE}/{OUTPUT}/1"

_ONE_BATCH = """
    (incarnation, batch_id, epoch, run_id, source_from, source_to, offsets_hash, partitions, max_event_time, ended, silent_max_event_time, silent_clock,
     ingestion_time, bucket, gc_floor, settings, mode, declaration_hash, state, committed_at, conserved, max_event_time_after, delta_version,
     read, kept, invalid, expired, duplicate, unknown_fields, in_time, late, units_removed)
"""

# A batch a minute, two incarnations of each query, the first one two thirds of it: every batch has kept one window's records.
# Units are kept for a while only, as retention leaves them.
FILL = f"""
INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES ('shop', 'shop'), ('shop@1', 'shop');
INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, state, start_from, kind, started_at)
SELECT 'shop/' || query || '/' || ordinal, 'shop', query, ordinal, gen_random_uuid(), CASE ordinal WHEN 1 THEN 'closed' ELSE 'live' END,
       CASE WHEN ordinal = 2 THEN jsonb_build_object('version', 2 * %(batches)s / 3, 'counted_upto', 2 * %(batches)s / 3 - 1,
                                                  'after_batch_no', 2 * %(batches)s / 3 - 1) END, 'stream', now()
FROM unnest(ARRAY['receive', 'per_minute']) query, generate_series(1, 2) ordinal;
INSERT INTO onlyonce_private.epochs SELECT incarnation, 1 FROM onlyonce_private.incarnations;
INSERT INTO onlyonce_private.batches {_ONE_BATCH}
SELECT 'shop/' || query || '/' || CASE WHEN n < 2 * %(batches)s / 3 THEN 1 ELSE 2 END,
       n - CASE WHEN n < 2 * %(batches)s / 3 THEN 0 ELSE 2 * %(batches)s / 3 END,
       1, 'run ' || n, CASE WHEN n > 0 THEN jsonb_build_object('reservoirVersion', n - 1, 'index', 0) END,
       jsonb_build_object('reservoirVersion', n, 'index', 0, 'batch_no', n, 'lines', 20), 'hash ' || n, 2,
       t.at - interval '1 minute', NULL, NULL, NULL, t.at, extract(epoch FROM t.at)::bigint / 600, 0, '{{}}', 'exactly_once', 'd1',
       'committed', t.at, true, CASE query WHEN 'receive' THEN t.at END, CASE query WHEN 'receive' THEN n END,
       CASE query WHEN 'receive' THEN 20 END, CASE query WHEN 'receive' THEN 20 END, 0, 0, 0, 0,
       CASE query WHEN 'receive' THEN NULL ELSE 20 END, 0, CASE WHEN n < %(batches)s - 1000 THEN 2 END
FROM unnest(ARRAY['receive', 'per_minute']) query, generate_series(0, %(batches)s - 1) n,
     LATERAL (SELECT timestamptz '2025-01-01' + n * interval '1 minute' AS at) t;
INSERT INTO onlyonce_private.units
    (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind, rows, content_hash, kept, invalid, expired, duplicate)
SELECT b.incarnation || '/' || b.batch_id || '/' || s.sink || '/' || p, b.incarnation, b.batch_id, s.sink, p, 1, 'driver', 'reference', 10, 'h',
       10, 0, 0, 0
FROM onlyonce_private.batches b, generate_series(0, 1) p,
     LATERAL (SELECT CASE WHEN b.incarnation LIKE 'shop/receive/%%' THEN 'events' ELSE 'per_minute' END AS sink) s
WHERE b.units_removed IS NULL;
INSERT INTO onlyonce_private.watermark_markers
    (incarnation, marker_no, epoch, kind, state, run_id, max_event_time, ended, silent_max_event_time, silent_clock, delta_version, committed_at)
SELECT 'shop/receive/' || CASE WHEN n < 2 * %(closes)s / 3 THEN 1 ELSE 2 END, n + 1, 1, 'silent', 'committed', 'run', t.at, NULL, t.at, t.at,
       n * (%(batches)s / %(closes)s), t.at
FROM generate_series(0, %(closes)s - 1) n, LATERAL (SELECT timestamptz '2025-01-01' + n * interval '10 minutes' AS at) t;
INSERT INTO onlyonce_private.window_counts (incarnation, batch_id, output, window_start, window_end, in_time, late)
SELECT b.incarnation, b.batch_id, 'per_minute', b.ingestion_time, b.ingestion_time + interval '1 minute', 20, 0
FROM onlyonce_private.batches b WHERE b.incarnation LIKE 'shop/per_minute/%%';
INSERT INTO onlyonce_private.panes
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash)
SELECT 'shop', 'per_minute', b.ingestion_time, b.ingestion_time + interval '1 minute', 0, b.ingestion_time < x.last, 5, b.incarnation, b.batch_id, 'd1'
FROM onlyonce_private.batches b, (SELECT max(ingestion_time) AS last FROM onlyonce_private.batches) x
WHERE b.incarnation LIKE 'shop/per_minute/%%';
INSERT INTO onlyonce_private.files
    (instance, output, incarnation, batch_id, partition, window_start, window_end, shard, shards, place, temporary, name, rows, bytes,
     checksum, pane, generation, finalized_at)
SELECT 'shop', 'per_minute', b.incarnation, b.batch_id, 0, b.ingestion_time, b.ingestion_time + interval '1 minute', 0, 1, '/data/files',
       'tmp-' || b.incarnation || b.batch_id, 'file-' || b.incarnation || b.batch_id, 5, 100, repeat('0', 64), 0, 0,
       CASE WHEN b.ingestion_time < x.last THEN now() END
FROM onlyonce_private.batches b, (SELECT max(ingestion_time) AS last FROM onlyonce_private.batches) x
WHERE b.incarnation LIKE 'shop/per_minute/%%';
INSERT INTO onlyonce_private.outbox
    (instance, output, unit, seq, checkpoint_id, key, payload, state, attempts, committed_at, begun_at, answered_at)
SELECT 'shop', 'per_minute', b.incarnation || '/' || b.batch_id || '/per_minute/0', 0, gen_random_uuid(), 'key', '{{}}',
       CASE WHEN b.ingestion_time < x.last THEN 'delivered' ELSE 'waiting' END, CASE WHEN b.ingestion_time < x.last THEN 1 ELSE 0 END,
       b.ingestion_time, b.ingestion_time, CASE WHEN b.ingestion_time < x.last THEN b.ingestion_time END
FROM onlyonce_private.batches b, (SELECT max(ingestion_time) AS last FROM onlyonce_private.batches) x
WHERE b.incarnation LIKE 'shop/per_minute/%%';
INSERT INTO onlyonce_private.driver_runs (dag_id, run_id, pipeline, attempt, begun_at)
SELECT 'shop', b.run_id, 'shop', 1, b.ingestion_time FROM onlyonce_private.batches b WHERE b.incarnation LIKE 'shop/receive/%%';
"""


def fill(url: str, batches: int) -> None:
    """Make the log of a migrated database that of so many batches of receive and as many of one output."""
    session = psycopg2.connect(url.replace("+psycopg2", ""))
    session.autocommit = True
    with session.cursor() as cursor:
        cursor.execute(FILL, {"batches": batches, "closes": max(batches // 10, 1)})
        # A day of buckets is live; the ids of those before are collected.
        cursor.execute(
            "UPDATE onlyonce_private.pipelines SET gc_floor = (SELECT max(bucket) - 144 FROM onlyonce_private.batches)"
        )
        cursor.execute("VACUUM ANALYZE")
    session.close()
