"""What a crash test reads back of a PostgreSQL table: each row as it is, exactly."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql

from onlyonce.testing import crash_results, scratch
from onlyonce.testing.crash_results import difference
from onlyonce.testing.scratch import Server

ROWS = """
    SELECT * FROM (VALUES
        ('plain', 1.5::float8, 1.5::real, 1.10::numeric, '2026-01-01T00:00:00.000001Z'::timestamptz, '{"a": [1]}'::jsonb, '\\x00ff'::bytea),
        ('', 'NaN', 'Infinity', 'NaN', NULL, NULL, NULL),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (E'two\\nlines, "quoted"', '-Infinity', 0, 0, '-infinity', 'null', '')
    ) AS r (name, double, single, exact, at, doc, raw)
"""


@pytest.fixture
def url(server: Server) -> str:
    """An empty database."""
    return server.url("writer", server.new_database())


def test_every_row_comes_back_as_it_is(url: str) -> None:
    """Null is no empty text, floats are floats, all else is its exact text in UTC, lines may be in it."""
    found = crash_results._copied(url, sql.SQL(ROWS)).to_pydict()

    assert found["name"] == ["plain", "", None, 'two\nlines, "quoted"']
    assert str(found["double"]) == "[1.5, nan, None, -inf]"
    assert str(found["single"]) == "[1.5, inf, None, 0.0]"
    assert found["exact"] == ["1.10", "NaN", None, "0"]
    assert found["at"] == ["2026-01-01 00:00:00.000001+00", None, None, "-infinity"]
    assert found["doc"] == ['{"a": [1]}', None, None, "null"]
    assert found["raw"] == ["\\x00ff", None, None, "\\x"]


def test_a_row_that_is_lost_or_twice_in_a_table_is_seen(url: str) -> None:
    """By way of the database: the same table is the same, one row less and one twice are told."""
    with psycopg2.connect(url.replace("+psycopg2", "")) as session:
        session.cursor().execute("CREATE TABLE t AS " + ROWS)
    table = sql.SQL("SELECT * FROM {}").format(sql.Identifier("public", "t"))
    wanted = crash_results._copied(url, table)
    assert difference("t", wanted, crash_results._copied(url, table)) is None

    with psycopg2.connect(url.replace("+psycopg2", "")) as session:
        session.cursor().execute("DELETE FROM t WHERE name = ''; INSERT INTO t SELECT * FROM t WHERE name IS NULL")

    apart = difference("t", wanted, crash_results._copied(url, table))
    assert apart is not None
    assert (apart.lost, apart.doubled) == (1, 1)


def test_an_empty_table_has_its_columns(url: str) -> None:
    """So that an output without a row is compared like any other."""
    found = crash_results._copied(url, sql.SQL(ROWS + " WHERE name = 'none'"))

    assert found.num_rows == 0
    assert found.column_names == ["name", "double", "single", "exact", "at", "doc", "raw"]


def test_a_server_of_its_own_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not touch the platform of the environment, and its folder is gone in the end, also after an error."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "mine"))
    monkeypatch.delenv("ONLYONCE_PG_PORT", raising=False)
    with suppress(KeyError), scratch.server("onlyonce-tests-") as made:
        assert made.folder.is_dir()
        assert psycopg2.connect(made.url("writer").replace("+psycopg2", "")).server_version
        raise KeyError

    assert not made.folder.exists()
    assert not (tmp_path / "mine").exists()
    assert os.environ["ONLYONCE_HOME"] == str(tmp_path / "mine")
    assert "ONLYONCE_PG_PORT" not in os.environ
