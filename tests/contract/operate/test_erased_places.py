"""Places of a value that no run of a pipeline brings about by itself: names, change data, what killed writers leave,
what is not ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import BigQuery, BigQueryStream, Custom, CustomSink, DeltaSource, Files, Growing, Kafka
from onlyonce.commitlog.erasures import Erasures
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.operate import erase_inputs, erase_search, forget
from onlyonce.sinks.base.stored import File
from onlyonce.sinks.base.stored import below as stored_below
from onlyonce.sinks.delta.sink_delta import StoredInDelta
from onlyonce.sinks.outbox.sink_outbox import StoredOutside
from onlyonce.tables import opening
from tests.contract.operate.test_forget import WHO, closed, erase, in_the_log, places  # noqa: F401 - a fixture
from tests.contract.shop import SHOP, Shop, shop  # noqa: F401 - a fixture
from tests.support.erasure_places import plants

CONDITION = erasure.read_conditions(f"id = '{WHO}'", {"id": "string"})
MENTIONS = Mentions(CONDITION)


def mentioned(file: File) -> bool:
    """Return whether a file mentions the person."""
    return erase_search.search_file(file, MENTIONS) is not None


def found_in(table: StoredInDelta) -> list[str]:
    """Return the files of a table that mention the person, below the table."""
    return sorted(str(Path(file.at).relative_to(str(table.path))) for file in table.files() if mentioned(file))


def below(root: Path) -> list[str]:
    """Return each folder below another one whose name has the person."""
    return [path.name for path in root.rglob("*") if WHO in path.name]


@pytest.fixture(params=["in rows too", "in names only"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> StoredInDelta:
    """A table partitioned by the person, with a change data feed, from which the person's rows are deleted.

    Its files have no column for a partition.
    """
    path, rows = (
        tmp_path / "results",
        pa.table({"id": [WHO, "other"], "n": [1, 2], "who": [WHO if request.param == "in rows too" else "", ""]}),
    )
    write_deltalake(str(path), rows, partition_by=["id"], configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(str(path)).delete(f"id = '{WHO}' AND n < 5")
    return StoredInDelta(path)


@plants("change data of Delta", "folder of a partition")
def test_change_data_and_folders_of_partitions_go(table: StoredInDelta, tmp_path: Path) -> None:
    """With the old versions. The log itself has the value of the partition, and is named."""
    [change] = (tmp_path / "results" / "_change_data").rglob("*.parquet")
    before = found_in(table)

    table.clean(MENTIONS, mentioned)

    assert before
    assert MENTIONS.in_string(str(change))
    assert not change.exists()
    assert below(tmp_path) == []
    assert {name.partition("/")[0] for name in found_in(table)} == {opening.LOG}
    assert DeltaTable(str(tmp_path / "results")).to_pyarrow_table().to_pylist() == [{"id": "other", "n": 2, "who": ""}]


@plants("change data of a commit under way")
def test_change_data_of_a_commit_under_way_stays_and_is_named(table: StoredInDelta, tmp_path: Path) -> None:
    """Another writer of the table may commit it."""
    [change] = (tmp_path / "results" / "_change_data").rglob("*.parquet")
    other = change.with_name("under-way.parquet")
    other.write_bytes(change.read_bytes())

    table.clean(MENTIONS, mentioned)

    assert (change.exists(), other.exists()) == (False, True)
    assert any(MENTIONS.in_string(file.at) for file in table.files() if file.at.endswith("under-way.parquet"))


@plants("row behind a deletion vector")
def test_a_row_behind_a_deletion_vector_stays_and_is_named(tmp_path: Path) -> None:
    """Only Spark rewrites such a file. The table holds up no erasure, and nothing of it changes."""
    path = tmp_path / "results"
    write_deltalake(str(path), pa.table({"id": [WHO, "other"]}))
    [action] = [one["add"] for one in opening.actions(path, 0) if "add" in one]
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 1,
    }
    features = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
    }
    actions = [
        features,
        {"remove": {"path": action["path"], "dataChange": True, "deletionTimestamp": 0}},
        {"add": action | {"deletionVector": vector}},
    ]
    (path / "_delta_log" / f"{1:020}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    stored, before = StoredInDelta(path), {file: file.read_bytes() for file in path.rglob("*.*")}

    stored.clean(MENTIONS, mentioned)

    assert {file: file.read_bytes() for file in path.rglob("*.*")} == before
    assert action["path"] in found_in(stored)
    assert all(
        "REORG TABLE … APPLY (PURGE)" in place.goes
        for file in stored.files()
        if (place := erase_search.search_file(file, MENTIONS))
    )


@plants("file of a killed writer", "name of an input file", "name of an empty folder", "log of Airflow", "kept sample")
def test_names_and_what_killed_writers_left_are_searched(closed: Shop) -> None:  # noqa: F811
    """A name stays, since the log knows the file by it, and the receipt has it.

    A file without its final name is no run's, and goes.
    """
    partial = settings.data_dir("shop") / "files" / ".part.0a.partial"
    sample, log = settings.home() / "checks" / "sample.jsonl", settings.home() / "airflow" / "logs" / "task.log"
    for file in (partial, sample, log):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{{"id":"{WHO}"}}')
    inbox = settings.inbox("shop")
    (inbox / f"{WHO}.jsonl").write_text('{"id":"other"}\n')
    (inbox / f"dt={WHO}").mkdir()
    before = places(closed)
    named = [f"the name of {inbox / name}" for name in (f"{WHO}.jsonl", f"dt={WHO}")]

    report = erase()

    left = {row["place"]: row["goes"] for row in report.tables[forget.LEFT]}
    assert {*named, str(partial), str(sample), str(log)} <= {*before}
    assert places(closed) == sorted(named)  # so the stored receipt does not have the name
    [(stored,)] = closed.log.rows("SELECT left_alone FROM onlyonce.removals")
    assert f"the name of {inbox}/….jsonl: 1 part(s)" in " ".join(stored)
    assert all("rename or delete" in left[name] for name in named)
    assert not partial.exists()


@plants("statements that PostgreSQL counts")
def test_statements_that_postgresql_counts_are_searched(closed: Shop) -> None:  # noqa: F811
    """Of our own role. A server that has not loaded the extension holds up no erasure."""
    closed.log.rows(
        "CREATE VIEW pg_stat_statements AS SELECT (1 / (random() * 0)::int)::text AS query"
    )  # as one that is not loaded, it can't be read
    assert Erasures(closed.log.database).statements() == []
    closed.log.rows(
        "CREATE OR REPLACE VIEW pg_stat_statements AS SELECT * FROM (VALUES ('SELECT $1'), ('COMMENT ON TABLE t "
        f"IS $${WHO}$$'), (NULL)) AS one (query)"
    )

    found = [*erase_search.found_stored(closed.log.database, closed.pipeline, MENTIONS)]

    assert [(rows.count, rows.goes) for rows in found if rows.at == "pg_stat_statements"] == [
        (1, erase_search.STATEMENTS_GO)
    ]


@plants("error of a batch", "error of a run", "error of a long run", "finding of the doctor", "alert")
def test_errors_in_the_log_go(closed: Shop) -> None:  # noqa: F811
    """An error may quote a record. Those of batches go, since all have ended; in the others a note takes its place."""
    error, receive = f"ValueError: {WHO} is wrong", closed.drivers["receive"].incarnation
    closed.log.rows(
        "INSERT INTO onlyonce_private.batch_failures (incarnation, batch_id, cause, times, refused) VALUES (%s, 0, %s, 2, "
        "jsonb_build_object('a place', %s))",
        receive,
        error,
        error,
    )
    closed.log.rows(
        "INSERT INTO onlyonce_private.driver_runs (dag_id, run_id, pipeline, ended_at, exit_code, why) "
        "VALUES ('hourly', 'one', 'shop', now(), 1, %s)",
        error,
    )
    closed.log.rows(
        "INSERT INTO onlyonce_private.long_runs (instance, why, down) VALUES ('shop', %s, jsonb_build_object('o', %s))",
        error, error,
    )  # fmt: skip
    closed.log.rows("INSERT INTO onlyonce_private.looks (found) VALUES (jsonb_build_array(%s))", error)
    closed.log.rows("INSERT INTO onlyonce_private.alerts (kind, subject, what) VALUES ('stuck', 'shop', %s)", error)

    goes = {rows.at: rows.goes for rows in erase_search.found_stored(closed.log.database, closed.pipeline, MENTIONS)}

    erase()

    named = {f"table onlyonce_private.{name}": erase_search.GO[name] for name in ("alerts", "long_runs", "looks")}
    assert named.items() <= goes.items()
    assert {"table onlyonce_private.batch_failures", "table onlyonce_private.driver_runs"} <= goes.keys()
    assert in_the_log(closed) == []
    assert closed.log.rows("SELECT * FROM onlyonce_private.batch_failures") == []
    note = [("it quoted a record that was erased",)]
    assert closed.log.rows("SELECT what FROM onlyonce_private.alerts") == note
    assert closed.log.rows("SELECT why FROM onlyonce_private.driver_runs") == note
    assert closed.log.rows("SELECT why, down FROM onlyonce_private.long_runs") == [(*note[0], {})]


def test_a_receipt_says_if_records_and_lines_were_not_compared(
    closed: Shop,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a topic beside the files no number of lines is too small."""

    def left(*sources: Any) -> bool:
        each = [replace(closed.pipeline, source=source) for source in sources]
        monkeypatch.setattr("onlyonce.api.pipeline.each_input", lambda _: each)
        lines = [one.line() for one in erase_inputs.left_in_files(closed.pipeline, CONDITION, None)]
        return any("not compared with the number of records" in line for line in lines)

    topic = Kafka(topic="t", servers="127.0.0.1:1")
    assert (left(Files(), topic), left(Files(), Files()), left(topic)) == (True, False, False)


@plants("growing file", "table that is a source", "what a reader of a team reads", "rows that were sent")
def test_what_is_not_ours_is_named(tmp_path: Path) -> None:
    """Each source and target, and how its rows go. A file that grows is searched, too."""
    grown, source = tmp_path / "grown", tmp_path / "source"
    grown.mkdir()
    (grown / "a.log").write_text(f'{{"id":"{WHO}"}}\n')
    write_deltalake(str(source), pa.table({"id": [WHO]}))
    declared = declarations.load([Path(SHOP)])["shop"]

    def left(given: Any) -> str:
        left = erase_inputs.left_in_files(replace(declared, source=given), CONDITION, None)
        return " ".join(one.line() for one in left)

    assert left(Growing(inbox=str(grown))) == ""
    assert [mentioned(file) for file in stored_below(grown, "")] == [True]
    assert f"rows of the table {source}: not searched; delete them there, then VACUUM" in left(
        DeltaSource(path=str(source))
    )
    assert "what the reader of the source reads from" in left(Custom(reader="a.b:C", needs_dedup=False))
    said = [
        StoredOutside(sink).stays()
        for sink in (BigQuery(table="p.d.t"), BigQueryStream(table="p.d.t"), CustomSink(target_class="a.b:C"))
    ]
    assert ["time travel and fail-safe" in one for one in said] == [True, True, False]
    assert "ask the owner of the target" in said[2]
