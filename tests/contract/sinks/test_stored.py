"""What the targets of outputs store is searched, cleaned or named: a file sink in a store, rows and statistics in
PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onlyonce.api.pipeline import Postgres
from onlyonce.commitlog.erasures import Erasures
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.operate import erase_search
from onlyonce.sinks.base.stored import File
from onlyonce.sinks.files.sink_files import StoredInFiles
from onlyonce.sinks.postgres.sink_postgres import StoredInPostgres
from tests.contract.conftest import Log
from tests.support.erasure_places import plants

WHO = "u17-secret"
MENTIONS = Mentions(erasure.read_conditions(f"id = '{WHO}'", {"id": "string"}))


def mentioned(file: File) -> bool:
    """Return whether a file mentions the person."""
    return erase_search.search_file(file, MENTIONS) is not None


@plants("object of a file sink")
def test_objects_of_a_file_sink_are_searched_by_their_url(log: Log, tmp_path: Path) -> None:
    """Those of panes and of attempts, each with how it goes."""
    (tmp_path / "parts").mkdir()
    for name, who in (("one.jsonl", WHO), ("two.jsonl", "other")):
        (tmp_path / "parts" / name).write_text(json.dumps({"id": who}) + "\n")
    sink = StoredInFiles(log.database, f"file://{tmp_path}")

    places = [place.left() for file in sink.files() if (place := erase_search.search_file(file, MENTIONS))]
    sink.clean(MENTIONS, mentioned)

    assert [place.place for place in places] == [f"file://{tmp_path}/parts/one.jsonl"]
    assert "delete it there" in places[0].goes
    assert (tmp_path / "parts" / "one.jsonl").exists()  # no attempt of ours has written it


@plants("statistics of PostgreSQL")
def test_statistics_of_a_table_are_searched_and_made_new(log: Log) -> None:
    """PostgreSQL keeps values of a column after their rows are gone, until ANALYZE reads others."""
    log.rows("CREATE SCHEMA results")
    log.rows("CREATE TABLE results.each (id text)")
    log.rows(
        "INSERT INTO results.each SELECT %s FROM generate_series(1, 20) UNION ALL SELECT 'other' FROM "
        "generate_series(1, 20)",
        WHO,
    )
    log.rows("ANALYZE results.each")
    sink = StoredInPostgres(log.database, Postgres(table="results.each"))
    before = [(rows.at, rows.count) for rows in sink.rows(MENTIONS)]
    log.rows("DELETE FROM results.each WHERE id = %s", WHO)
    deleted = [rows.at for rows in sink.rows(MENTIONS)]

    sink.clean(MENTIONS, mentioned)

    assert before == [("table results.each", 20), ("pg_stats of results.each", 1)]
    assert (deleted, [*sink.rows(MENTIONS)]) == (["pg_stats of results.each"], [])


@pytest.mark.parametrize("table", ["outbox", "rejected"])
def test_no_statistics_are_kept_of_values_in_own_tables(log: Log, table: str) -> None:
    """So none outlives its row."""
    log.start("shop", "per_shop")
    log.rows(
        "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, key, payload, answer) "
        "SELECT 'shop', 'mails', 'u', n, gen_random_uuid(), who, who, who FROM (SELECT CAST(%s AS text) AS who) " "w, generate_series(1, 50) n"
        if table == "outbox" else
        "INSERT INTO onlyonce_private.rejected (instance, output, event_time, oo_high, oo_low, received_as, " "received_in, reason, rows, incarnation, batch_id) "
        "SELECT 'shop', 'per_shop', now(), n, n, 'l', 1, who, 1, 'shop/per_shop/1', 0 FROM (SELECT CAST(%s AS " "text) AS who) w, generate_series(1, 50) n", WHO,
    )  # fmt: skip
    log.rows(f"ANALYZE onlyonce_private.{table}")

    kept = Erasures(log.database).statistics("onlyonce_private", table)

    assert "instance" in dict(kept)
    assert WHO not in str(kept)
