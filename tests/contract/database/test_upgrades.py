"""An upgrade from each landed version of the schema: what is in the log stays, and the schema is the fresh one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest

from onlyonce.database.migrate import JOURNAL, migrate, migrations
from tests.contract.conftest import ask
from tests.support.platform import Server

FILES = [one for folder in ("authority", "platform") for one in migrations(folder)]
PREFIXES = [FILES[:count] for count in range(1, len(FILES) + 1)]

LOG = """
INSERT INTO onlyonce_private.pipelines (instance, pipeline, gc_floor) VALUES ('shop', 'shop', 7);
INSERT INTO onlyonce_private.lineages (lineage, instance, query, life, checkpoint_id, state)
    VALUES ('shop/receive/1', 'shop', 'receive', 1, '00000000-0000-4000-8000-000000000001', 'closed'),
           ('shop/receive/2', 'shop', 'receive', 2, '00000000-0000-4000-8000-000000000002', 'live');
INSERT INTO onlyonce_private.batches (lineage, batch_id, epoch, state, run_id, source_to, offsets_hash, partitions,
        system_time, bucket, gc_floor, settings, mode, declaration_hash, read, kept, conserved, committed_at)
    VALUES ('shop/receive/1', 0, 1, 'committed', 'run', '{"a": 1}', 'h0', 2, '2026-03-01', 7, 0, '{}', 'exactly_once', 'd',
            3, 3, true, '2026-03-01'),
           ('shop/receive/2', 0, 2, 'begun', 'run', '{"a": 2}', 'h1', 2, '2026-03-02', 8, 7, '{}', 'exactly_once', 'd',
            NULL, NULL, NULL, NULL);
INSERT INTO onlyonce_private.closes (lineage, close_no, epoch, kind, run_id, ended)
    VALUES ('shop/receive/2', 1, 2, 'ended', 'run', '2026-03-02');
INSERT INTO onlyonce_private.window_counts VALUES ('shop/receive/1', 0, 'out', '2026-03-01', '2026-03-02', 3, 0);
INSERT INTO onlyonce_private.panes (instance, output, window_start, window_end, generation, final, rows, lineage,
        batch_id, declaration_hash)
    VALUES ('shop', 'out', '2026-03-01', '2026-03-02', 0, true, 3, 'shop/out/1', 0, 'd');
"""
DATA = {
    "authority/0001_units": """
        INSERT INTO onlyonce_private.epochs VALUES ('shop/receive/2', 2);
        INSERT INTO onlyonce_private.units (unique_id, lineage, batch_id, sink, partition, epoch, attempt, kind, rows,
                content_hash, float_sums, kept)
            VALUES ('shop/receive/1/0/events/0', 'shop/receive/1', 0, 'events', 0, 1, 'a', 'witness', 3, 'h', '{"w": 1.5}', 3)
    """,
    "platform/0001_log": LOG,
    "platform/0002_catalog": """
        CREATE TABLE onlyonce_private.catalog_shop PARTITION OF onlyonce_private.catalog_chunks FOR VALUES IN ('shop');
        INSERT INTO onlyonce_private.catalog_chunks (instance, bucket, lineage, batch_id, partition, partitions, ids, id_count)
            VALUES ('shop', 7, 'shop/receive/1', 0, 0, 2, decode(repeat('0f', 32), 'hex'), 2)
    """,
}  # fmt: skip
"""What is put in as soon as there is a table for it."""

COLUMNS = """
    SELECT c.oid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
        pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
    WHERE c.relnamespace::regnamespace::text LIKE 'onlyonce%' AND c.relname NOT LIKE 'catalog_shop%'
"""
RULES = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'onlyonce_private'::regnamespace AND conrelid::regclass::text NOT LIKE '%catalog_shop%'
    UNION ALL SELECT tablename, indexname, indexdef FROM pg_indexes
    WHERE schemaname = 'onlyonce_private' AND tablename <> 'catalog_shop'
    UNION ALL SELECT c.oid::regclass::text, 'grants', c.relacl::text FROM pg_class c
    WHERE c.relnamespace::regnamespace::text LIKE 'onlyonce%' AND c.relname NOT LIKE 'catalog_shop%'
    UNION ALL SELECT viewname, 'view', definition FROM pg_views WHERE schemaname = 'onlyonce'
"""


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    name = server.new_database()
    yield server.url("writer", name)
    server.drop(name)


@pytest.fixture(scope="module")
def fresh(server: Server) -> Iterator[Counter[Any]]:
    """What a database made by all the files at once is."""
    name = server.new_database()
    url = server.url("writer", name)
    migrate(url)
    yield schema_of(url)
    server.drop(name)


def schema_of(url: str) -> Counter[Any]:
    """Every column with its default and comment, every constraint, index, right and view."""
    return Counter([*ask(url, COLUMNS), *ask(url, RULES)])


def install(url: str, files: list[Any]) -> None:
    """A database as an older version left it: these files applied and noted by plain SQL, and data in it."""

    connection = psycopg2.connect(url.replace("+psycopg2", ""))
    with connection, connection.cursor() as cursor:
        cursor.execute(JOURNAL)
        for one in files:
            cursor.execute(one.script)
            note = (one.name, one.checksum)
            cursor.execute("INSERT INTO onlyonce_private.migrations (name, checksum) VALUES (%s, %s)", note)
            cursor.execute(DATA.get(one.name, "SELECT 1"))
    connection.close()


def rows_of(url: str, columns: dict[str, list[str]]) -> Counter[Any]:
    """Every row of these tables in these columns, as text."""
    return Counter(
        (table, *row)
        for table, names in columns.items()
        for row in ask(url, f"SELECT {', '.join(f'{name}::text' for name in names)} FROM {table}")
    )


def columns_of(url: str) -> dict[str, list[str]]:
    """The columns that each table has now."""
    found: dict[str, list[str]] = {}
    names = (
        "SELECT c.oid::regclass::text, quote_ident(a.attname) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "AND a.attnum > 0 WHERE c.relnamespace = 'onlyonce_private'::regnamespace AND c.relkind IN ('r', 'p') "
        "AND c.relname <> 'migrations' ORDER BY c.relname, a.attnum"
    )
    for table, name in ask(url, names):
        found.setdefault(table, []).append(name)
    return found


@pytest.mark.parametrize("files", PREFIXES, ids=lambda files: files[-1].name.replace("/", "-"))
def test_an_upgrade_keeps_every_row_and_ends_at_the_fresh_schema(
    empty: str, fresh: Counter[Any], files: list[Any]
) -> None:
    """From each version that there was: what its columns held they hold, and nothing tells it from a new database."""
    install(empty, files)
    columns = columns_of(empty)
    before = rows_of(empty, columns)

    migrate(empty)

    assert before
    assert rows_of(empty, columns) == before
    assert schema_of(empty) == fresh


def test_what_is_put_in_names_files_that_there_are(empty: str) -> None:
    """A data set whose file was renamed would silently test an empty database."""
    assert {one.name for one in FILES} >= DATA.keys()
