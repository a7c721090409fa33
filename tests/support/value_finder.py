"""Find a value wherever a platform has bytes, without the product's list of places: each file below a folder, each file
of a database, and the write-ahead log; and outside, tables of a MySQL and messages of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import psycopg2

from onlyonce.core.erasure import Mentions
from onlyonce.operate import erase_search
from onlyonce.tables.checkpoint import NotDecoded
from tests.support.broker import Broker
from tests.support.mariadb import MariaDB
from tests.support.platform import Server

WAL = "write-ahead log of PostgreSQL"
ON_PAGES = """
    SELECT n.nspname || '.' || o.relname, pg_read_binary_file(pg_relation_filepath(c.oid), true)
    FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.reltoastrelid = coalesce(i.indrelid, c.oid)
    JOIN pg_class o ON o.oid = coalesce(t.oid, i.indrelid, c.oid) JOIN pg_namespace n ON n.oid = o.relnamespace
    WHERE c.relkind IN ('r', 'i', 't', 'm') AND pg_relation_filepath(c.oid) IS NOT NULL
"""
IN_WAL = "SELECT pg_read_binary_file('pg_wal/' || name, true) FROM pg_ls_waldir()"


def in_files(folder: str, mentions: Mentions) -> Iterator[str]:
    """Yield each file that mentions the condition or can't be decoded, hidden and temporary ones too, and each name
    that does."""
    for path in sorted(Path(folder).rglob("*")):
        if mentions.in_string(path.name):
            yield f"the name of {path}"
        try:
            if path.is_file() and erase_search.count_mentions(path.read_bytes(), mentions):
                yield str(path)
        except NotDecoded:
            yield str(path)


def in_database(server: Server, database: str, values: Iterable[str]) -> Iterator[str]:
    """Yield each table with a value on its pages, on those of its indexes or in its TOAST table, also of a row that was
    deleted, and the write-ahead log."""
    sought = [value.encode() for value in values]
    with psycopg2.connect(server.url("admin", database).replace("+psycopg2", "")) as session:
        cursor = session.cursor()
        cursor.execute("CHECKPOINT")
        cursor.execute(ON_PAGES)
        for table, content in cursor.fetchall():
            if content is not None and any(one in bytes(content) for one in sought):
                yield f"table {table}"
        cursor.execute(IN_WAL)
        if any(one in bytes(content) for (content,) in cursor.fetchall() if content is not None for one in sought):
            yield WAL


def in_mysql(server: MariaDB, database: str, mentions: Mentions) -> Iterator[str]:
    """Yield each table of a database with a row that mentions the condition."""
    for (table,) in server.rows(database, "SHOW TABLES"):
        rows = server.rows(database, f"SELECT * FROM `{table}`")
        if any(mentions.in_string(str(cell)) for row in rows for cell in row):
            yield f"table {table}"


def in_topic(broker: Broker, topic: str, mentions: Mentions) -> bool:
    """Return whether a message of a topic mentions the condition."""
    return any(
        erase_search.count_mentions(part, mentions)
        for message in broker.read(topic, 1)
        for part in (message.key(), message.value())
        if part
    )
