"""The page stays quick as the log grows: each question reads about as much of ten times the log.

A million commits: README.

Measured in pages of the database, which a busy machine does not change, on rows that are put there by SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg2
import pytest
from sqlalchemy import create_engine, text

from onlyonce.database.migrate import migrate
from onlyonce.database.statements import queries
from onlyonce.operate import gc
from tests.contract.conftest import Log, ask
from tests.support.platform import Server

SMALL, LARGE = 1_000, 10_000
ADDS_UP = {"pipelines", "incarnations"}
"""They add up all batches: by an index alone, and one number for each batch, not for each unit."""
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
NAMED = {
    "instance": "shop", "instances": ["shop"], "pipeline": "shop", "pipelines": ["shop"], "dag_id": "hourly", "n": 51, "incarnation": "shop/receive/1", "before": SMALL // 2, "output": "per_shop",
    "start": datetime(2013, 1, 4, tzinfo=UTC), "end": LATEST, "generation": 0, "begun_at": LATEST, "batch": SMALL // 2,
    "run_id": "run_20", "committed_at": LATEST, "unique_id": "shop/receive/1/17/events/0", "sink": "", "partition": -1,
    "since": datetime(1, 1, 1, tzinfo=UTC), "pane": -1, "shard": -1, "most": 1000,
}  # fmt: skip

FILL = """
INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES ('shop', 'shop');
INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id)
VALUES ('shop/receive/1', 'shop', 'receive', 1, gen_random_uuid()), ('shop/per_shop/1', 'shop', 'per_shop', 1, gen_random_uuid());
INSERT INTO onlyonce_private.epochs SELECT incarnation, 1 FROM onlyonce_private.incarnations;
INSERT INTO onlyonce_private.batches (incarnation, batch_id, epoch, state, run_id, source_to, offsets_hash, partitions, ingestion_time,
    bucket, gc_floor, settings, mode, declaration_hash, read, kept, invalid, expired, duplicate, in_time, late, max_event_time_after,
    delta_version, conserved, begun_at, committed_at)
SELECT incarnation, i, 1, 'committed', 'run_' || i / 20, jsonb_build_object('reservoirVersion', i + 2, 'index', -1), repeat('x', 64), 2,
    now(), i, 0, jsonb_build_object('a setting', repeat('x', 300)), 'exactly_once', 'd1', 10 * r, 9 * r, 0, 0, r, 8 * (1 - r),
    1 - r, CASE WHEN r = 1 THEN timestamptz '2013-01-01Z' + i * interval '10 min' END, CASE WHEN r = 1 THEN i + 1 END, true, now() - interval '49 hours', now() - interval '48 hours'
FROM onlyonce_private.incarnations, generate_series(0, :n - 1) i, LATERAL (SELECT (query = 'receive')::int AS r) r;
INSERT INTO onlyonce_private.units (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind, rows, kept, invalid,
    expired, duplicate)
SELECT incarnation || '/' || batch_id || '/s/' || p, incarnation, batch_id, 's', p, 1, '0.0', 'reference', 1, kept / 9 * (9 * p), 0, 0,
    duplicate * p
FROM onlyonce_private.batches, generate_series(0, 1) p;
INSERT INTO onlyonce_private.window_counts
SELECT incarnation, batch_id, 'per_shop', w, w + interval '10 min', in_time, late FROM onlyonce_private.batches,
    LATERAL (SELECT timestamptz '2013-01-01Z' + batch_id * interval '10 min' AS w) w WHERE incarnation = 'shop/per_shop/1';
INSERT INTO onlyonce_private.panes
SELECT 'shop', output, window_start, window_end, 0, true, 1, incarnation, batch_id, 'd1' FROM onlyonce_private.window_counts;
INSERT INTO onlyonce_private.files (instance, output, incarnation, batch_id, partition, window_start, window_end, shard, shards, generation,
    pane, place, temporary, name, rows, bytes, checksum, finalized_at)
SELECT 'shop', output, incarnation, batch_id, 0, window_start, window_end, 0, 1, 0, 1, 'here', batch_id, batch_id, 1, 1, 'x',
    CASE WHEN batch_id >= 20 THEN now() END FROM onlyonce_private.window_counts;
"""


@pytest.fixture(scope="module")
def logs(server: Server) -> Iterator[dict[int, Log]]:
    """Two logs of one pipeline: the second has ten times the batches, units and windows."""
    made = {n: Log(server, server.new_database()) for n in (SMALL, LARGE)}
    for n, log in made.items():
        migrate(log.url)
        ask(log.url, FILL.replace(":n", str(n)))
        assert gc.fold_sums(log.database) == 2 * n
        session = psycopg2.connect(log.url.replace("+psycopg2", ""))
        session.autocommit = True
        session.cursor().execute("VACUUM ANALYZE")
        session.close()
    yield made
    for log in made.values():
        server.drop(log.name)


def pages_read(log: Log, query: str) -> int:
    """How many pages of the database the reader's question touches, and that it finds something."""
    statement = queries("page")[query]
    values = {name: value for name, value in NAMED.items() if f":{name}" in statement}
    engine = create_engine(log.server.url("reader", log.name))
    with engine.connect() as connection:
        plan: Any = connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"), values).scalar()
    engine.dispose()
    [root] = json.loads(plan) if isinstance(plan, str) else plan
    return int(root["Plan"]["Shared Hit Blocks"] + root["Plan"]["Shared Read Blocks"])


@pytest.mark.parametrize("query", sorted(queries("page").keys() - ADDS_UP))
def test_a_question_reads_as_much_of_ten_times_the_log(logs: dict[int, Log], query: str) -> None:
    """Within a factor of three: an index is one level deeper, a small table is read whole."""
    small, large = (pages_read(logs[n], query) for n in (SMALL, LARGE))

    assert large <= 3 * small + 50


@pytest.mark.parametrize("query", sorted(ADDS_UP))
def test_what_adds_up_all_batches_reads_an_index_and_not_the_batches(logs: dict[int, Log], query: str) -> None:
    """Their rows are wide; the index holds the numbers alone."""
    [(table,)] = logs[LARGE].rows("SELECT pg_relation_size('onlyonce_private.batches') / 8192")

    assert pages_read(logs[LARGE], query) < table / 2
