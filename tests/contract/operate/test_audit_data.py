"""The audit of the data names every disagreement between tables and log, and nothing else.

A real PostgreSQL, no JVM.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline
from onlyonce.api.sinks import BigQuery, FileSink, Webhook
from onlyonce.cli import app
from onlyonce.core.errors import Refused
from onlyonce.database.connect import run
from onlyonce.operate import audit
from onlyonce.sinks.files.file_stores import folder_of
from tests.contract.shop import EVENTS, INSTANT, MINUTE, Shop, at, shop

__all__ = ["shop"]
WINDOWS = pa.schema([("window_start", INSTANT), ("window_end", INSTANT)])


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves between the two looks of a test."""
    monkeypatch.setattr(audit, "SECOND_LOOK_SECONDS", 0.0)


@pytest.fixture
def whole(shop: Shop) -> Shop:
    """Two receive batches; `per_shop` has written two windows to Delta, `total` one of them to PostgreSQL.

    All is committed.
    """
    shop.receive(("a", at(0)), ("b", at(1)), ('{"id"', "the line is no JSON object"))
    shop.receive(("c", at(5)), ("a", at(0)))
    shop.output(closes=(at(0), at(1)))
    shop.output("balance")
    table(shop, at(0), at(1))
    shop.log.rows(
        "INSERT INTO onlyonce_private.panes SELECT instance, 'total', window_start, window_end, generation, " "final, 1, incarnation, "
        "batch_id, declaration_hash, committed_at FROM onlyonce_private.panes WHERE window_start = %s", at(0),
    )  # fmt: skip
    shop.log.rows(
        "CREATE SCHEMA results; CREATE TABLE results.total (window_start timestamptz, window_end timestamptz)"
    )
    shop.log.rows("INSERT INTO results.total VALUES (%s, %s)", at(0), at(1))
    return shop


def table(shop: Shop, *starts: Any) -> None:
    """The rows of `per_shop` are those of these windows, one each."""
    rows = pa.Table.from_pylist([{"window_start": start, "window_end": start + MINUTE} for start in starts], WINDOWS)
    write_deltalake(str(settings.tables_dir() / "shop" / "per_shop"), rows, mode="overwrite", schema_mode="overwrite")


def found(shop: Shop) -> tuple[list[str], list[str]]:
    """(disagreements, what was not compared)."""
    return audit.examine_data(shop.log.database, declarations.load(), lambda _: None)


def again(shop: Shop, **changed: Any) -> None:
    """A row of `events` stands there once more, or changed."""
    row = next(row for row in DeltaTable(str(shop.events)).to_pyarrow_table().to_pylist() if row["id"] == "c")
    write_deltalake(str(shop.events), pa.Table.from_pylist([row | changed], EVENTS), mode="append")


def test_a_platform_whose_tables_hold_what_the_log_says_has_no_finding(whole: Shop) -> None:
    """What can't be compared is named with the reason, not passed over."""
    disagreements, left_out = found(whole)

    assert disagreements == []
    assert left_out == ["shop: balance: an increment adds to rows that don't say their window"]


def lose_ids(shop: Shop) -> None:
    """The catalog has lost a chunk."""
    shop.log.rows("DELETE FROM onlyonce_private.catalog_chunks WHERE batch_id = 1")


DAMAGES: dict[str, tuple[Callable[[Shop], Any], str]] = {
    "a row of events is gone": (
        lambda shop: DeltaTable(str(shop.events)).delete("id = 'c'"),
        "shop/receive/1/1: the log says 1 kept, `events` has 0",
    ),
    "the table events is gone": (
        lambda shop: shutil.rmtree(shop.events),
        "shop: the log says that 4 rows were written to `events`, and there is no table ",
    ),
    "a row of events is there twice": (again, "shop/receive/1/1: the log says 1 kept, `events` has 2"),
    "an invalid row is gone": (
        lambda shop: DeltaTable(str(shop.events)).delete("oo_kind = 'invalid'"),
        "shop/receive/1/0: the log says 1 invalid, `events` has 0",
    ),
    "a batch that nobody knows": (
        lambda shop: again(shop, oo_batch=77),
        "shop/receive/1/77: `events` has 1 kept, the log knows no such batch",
    ),
    "a value was changed": (
        lambda shop: DeltaTable(str(shop.events)).update(updates={"id": "'z'"}, predicate="id = 'c'"),
        "shop/receive/1/1: 1 of its rows have other values than their id says",
    ),
    "ids are lost": (lose_ids, "shop/receive/1/1: 1 ids of rows in `events` are not in the catalog"),
    "a window is gone": (
        lambda shop: table(shop, at(1)),
        f"shop: per_shop: window [{at(0)}, {at(1)}): the log says 1 rows, the table has 0",
    ),
    "a window is there twice": (
        lambda shop: table(shop, at(0), at(0), at(1)),
        f"shop: per_shop: window [{at(0)}, {at(1)}): the log says 1 rows, the table has 2",
    ),
    "a window that was never written": (
        lambda shop: table(shop, at(0), at(1), at(9)),
        f"shop: per_shop: window [{at(9)}, {at(10)}): the log says 0 rows, the table has 1",
    ),
    "a row of PostgreSQL is there twice": (
        lambda shop: shop.log.rows("INSERT INTO results.total SELECT * FROM results.total"),
        f"shop: total: window [{at(0)}, {at(1)}): the log says 1 rows, the table has 2",
    ),
    "a table of PostgreSQL is gone": (
        lambda shop: shop.log.rows("DROP TABLE results.total"),
        f"shop: total: window [{at(0)}, {at(1)}): the log says 1 rows, the table has 0",
    ),
}


def test_window_that_differs_comes_with_its_backfill(whole: Shop) -> None:
    """Not if the whole table is empty: it may be gone, and then a backfill refuses it."""
    table(whole, at(1))
    [cut] = found(whole)[0]
    table(whole)
    [empty, _] = found(whole)[0]

    start, stop = (time.isoformat().replace("+00:00", "Z") for time in (at(0), at(1)))
    assert cut.endswith(f"onlyonce backfill shop --output per_shop --from {start} --to {stop}")
    assert "onlyonce backfill" not in empty


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_disagreement_is_named_with_its_place(whole: Shop, damage: str) -> None:
    """By batch and fate, or by window, with both numbers; only what was damaged is named."""
    do, expected = DAMAGES[damage]
    do(whole)

    disagreements, _ = found(whole)

    assert len(disagreements) == 1, disagreements
    assert disagreements[0].startswith(expected)


def test_what_is_under_way_is_no_disagreement(whole: Shop) -> None:
    """A batch that has landed in `events` and is not committed, and an output in the middle of one."""
    whole.receive(("d", at(6)), upto="land")
    whole.output(closes=(at(5),), upto="units")
    table(whole, at(0), at(1), at(5))

    disagreements, left_out = found(whole)

    assert disagreements == []
    assert [why for why in left_out if why.startswith("shop: per_shop: a batch has begun and has not ended")]


def test_begun_backfill_leaves_out_its_own_windows_only(whole: Shop) -> None:
    """It says what they may hold, how many are as before, and the command that ends it."""
    whole.log.rows(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/per_shop@x/1', 'shop', 'per_shop@x', 1, gen_random_uuid(), 'backfill')"
    )
    whole.log.rows(
        "INSERT INTO onlyonce_private.backfills (incarnation, batch_id, instance, output, epoch, run_id, asked_by, window_from, "
        "window_to, events_version, declaration_hash) VALUES ('shop/per_shop@x/1', 0, 'shop', 'per_shop', 1, 'r', 'person', %s, %s, "
        "1, 'd')", at(0), at(1),
    )  # fmt: skip
    assert found(whole)[0] == []
    table(whole)

    disagreements, left_out = found(whole)

    [finding] = [one for one in disagreements if one.startswith("shop: per_shop: ")]
    [state] = [why for why in left_out if why.startswith("shop: per_shop: ")]
    start, stop = (time.isoformat().replace("+00:00", "Z") for time in (at(0), at(1)))
    assert finding.startswith(f"shop: per_shop: window [{at(1)}, ")
    assert "0 of 1 have as many rows as before" in state
    assert state.endswith(f"\nto end it: onlyonce backfill shop --output per_shop --from {start} --to {stop}")


def test_a_disagreement_that_the_stream_resolves_is_none(whole: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts when a second look has it too."""
    table(whole, at(0))
    monkeypatch.setattr("time.sleep", lambda _: table(whole, at(0), at(1)))

    assert found(whole)[0] == []


def declared_with(sink: Any) -> dict[str, Pipeline]:
    """`shop`, its output `per_shop` in another sink."""
    shop = declarations.load()["shop"]
    changed = [replace(output, sink=sink) if output.name == "per_shop" else output for output in shop.outputs]
    return {"shop": replace(shop, outputs=tuple(changed))}


@pytest.fixture
def filed(whole: Shop) -> Shop:
    """The two windows of `per_shop` are a file each, with their final names."""
    folder = folder_of("shop/per_shop")
    folder.mkdir(parents=True)
    for number, start in enumerate((at(0), at(1))):
        (folder / f"{number}.jsonl").write_text(text := f'{{"n": {number}}}\n')
        whole.log.rows(
            "INSERT INTO onlyonce_private.files (instance, output, incarnation, batch_id, partition, window_start, " "window_end, shard, "
            "shards, place, temporary, name, rows, bytes, checksum, pane, generation, finalized_at) "
            "SELECT 'shop', 'per_shop', incarnation, 0, 0, %s, %s, 0, 1, 'shop/per_shop', %s, %s, 1, %s, %s, 0, 0, now() "
            "FROM onlyonce_private.incarnations WHERE query = 'per_shop'",
            start, start + MINUTE, f"t{number}", f"{number}.jsonl", len(text), hashlib.sha256(text.encode()).hexdigest(),
        )  # fmt: skip
    return whole


FILE_DAMAGES = {
    "a file is gone": (Path.unlink, "it does not exist"),
    "a file was cut": (lambda path: path.write_text("{"), "it has 1 bytes"),
    "a byte has flipped": (lambda path: path.write_text('{"n": 7}\n'), "its sha256 is "),
}


@pytest.mark.parametrize("damage", FILE_DAMAGES)
def test_a_damaged_file_is_named(filed: Shop, damage: str) -> None:
    """With what its unit has recorded and what is there; undamaged files have no finding."""
    declared = declared_with(FileSink(shards=1))
    assert audit.examine_data(filed.log.database, declared, lambda _: None)[0] == []
    do, told = FILE_DAMAGES[damage]
    do(folder_of("shop/per_shop") / "1.jsonl")

    [finding] = audit.examine_data(filed.log.database, declared, lambda _: None)[0]

    assert finding.startswith("shop: per_shop: 1.jsonl: the log says 9 bytes, sha256 ")
    assert told in finding


def test_a_window_whose_files_the_log_has_lost_is_named(filed: Shop) -> None:
    """The rows of the files that count are those of the window."""
    filed.log.rows("DELETE FROM onlyonce_private.files WHERE name = '1.jsonl'")

    [finding] = audit.examine_data(filed.log.database, declared_with(FileSink(shards=1)), lambda _: None)[0]

    assert finding.startswith(
        f"shop: per_shop: window [{at(1)}, {at(2)}): the log says 1 rows, the table has 0 (files:"
    )


@pytest.mark.parametrize("sink", [Webhook(url="http://127.0.0.1:1/"), BigQuery(table="a.b.c")])
def test_what_was_sent_outside_is_left_out_with_a_word(whole: Shop, sink: Any) -> None:
    """There is nothing to count from here, and that is said."""
    disagreements, left_out = audit.examine_data(whole.log.database, declared_with(sink), lambda _: None)

    assert disagreements == []
    assert (
        "shop: per_shop: what was sent outside can't be counted from here; onlyonce.outbox has each answer" in left_out
    )


def test_a_pipeline_that_is_not_declared_has_its_events_compared(whole: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables are not known, and that is said."""
    again(whole)

    disagreements, left_out = audit.examine_data(whole.log.database, {}, lambda _: None)

    assert len(disagreements) == 1
    assert [why.partition(";")[0] for why in left_out] == [
        "shop: no file that was read declares shop, so its tables are not known"
    ]


def test_the_command_compares_the_data_when_it_is_asked(whole: Shop) -> None:
    """The audit of the log alone does not see it; with --data the exit code is 1 and the batch is named."""
    whole.die()
    run(
        whole.log.database,
        lambda conn: conn.exec_driver_sql(
            "UPDATE onlyonce_private.incarnations SET ordinal = 2 WHERE query <> 'receive'"
        ),
    )
    again(whole)
    cli = CliRunner()
    assert cli.invoke(app, ["audit", "--json"]).exit_code == 0

    result = cli.invoke(app, ["audit", "--data", "--json"])

    assert result.exit_code == 1
    [warning] = json.loads(result.stdout)["warnings"]
    assert warning.startswith("shop/receive/1/1: the log says 1 kept, `events` has 2")


def test_command_compares_what_is_declared_and_names_the_rest(whole: Shop, tmp_path: Path) -> None:
    """A home of two projects: it fails only if the pipeline that was left out was named.

    With the files of both everything is compared.
    """
    whole.die()
    run(
        whole.log.database,
        lambda conn: conn.exec_driver_sql(
            "UPDATE onlyonce_private.incarnations SET ordinal = 2 WHERE query <> 'receive'"
        ),
    )
    other = tmp_path / "other.py"
    other.write_text("PIPELINES = []\n")
    cli = CliRunner()

    of_all = cli.invoke(app, ["audit", "--data", "--json", "--pipelines", str(other)])
    named = cli.invoke(app, ["audit", "shop", "--data", "--json", "--pipelines", str(other)])

    assert (of_all.exit_code, named.exit_code) == (0, Refused.exit_code)
    for result in (of_all, named):
        report = json.loads(result.stdout)
        assert report["title"].endswith("; the tables of shop were not compared")
        assert report["facts"]["pipelines that are not declared"] == "shop"
        [row] = report["tables"]["tables that were not compared"]
        assert "onlyonce audit shop --data --pipelines FILE" in row["why"]
    assert "the tables of shop were not compared" in named.stderr
    both = ["--pipelines", str(other), "--pipelines", str(settings.pipeline_files()[0])]
    assert cli.invoke(app, ["audit", "--data", *both]).exit_code == 0


def test_audit_of_one_pipeline_leaves_the_others_out(whole: Shop) -> None:
    """Their findings too; a name that neither the log nor a file has is refused."""
    whole.die()
    whole.log.start("mill", "receive")
    whole.log.rows("UPDATE onlyonce_private.batches SET kept = kept + 1 WHERE kept IS NOT NULL")

    assert audit.examine_log(only="shop").warnings
    assert audit.examine_log(only="mill").warnings == []
    assert audit.examine_log(only="mill").tables["conservation"] == []
    with pytest.raises(Refused, match="shopp"):
        audit.examine_log(only="shopp")
