"""Each thing that can be stuck is found, explained and repaired; a healthy platform has no finding, at work or idle.

On the real PostgreSQL, with Delta tables that are made without Spark; a repair that needs Spark is stood in for by what
a run does to the log, and carried out in `tests/spark/operate/test_operate.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from typer.testing import CliRunner

from onlyonce import failed_runs, settings
from onlyonce.api import load as declarations
from onlyonce.asked import parse
from onlyonce.catalog.merging import Crowd, Merging
from onlyonce.cli import app
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.commitlog.units import Authorities
from onlyonce.core import stored_names
from onlyonce.core.backfill import Span
from onlyonce.core.diagnosis import ends_backfill
from onlyonce.core.stuck import BegunBackfill
from onlyonce.database.connect import Database, forget_connections
from onlyonce.operate import doctor
from tests.contract.shop import BUCKET, EVENTS, INSTANT, Shop, at, commit, shop

__all__ = ["shop"]
Finding = dict[str, Any]


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing moves between the two looks of a test; its log lines go to no stream that ends with the test."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    yield
    structlog.reset_defaults()


def examined(*arguments: str) -> list[Finding]:
    """The findings of `onlyonce doctor`, where a driver without a session is dead at once."""
    return doctor.main(["--grace=0", *arguments]).tables["findings"]


def kinds(found: list[Finding]) -> list[str]:
    """What was found."""
    return [one["finding"] for one in found]


def only(found: list[Finding]) -> Finding:
    """The one finding, explained in full."""
    assert len(found) == 1, found
    assert all(found[0][part] for part in ("where", "what", "data", "repair"))
    return found[0]


def resting(shop: Shop) -> Shop:
    """Two batches of receive are read by an output, all is committed, and every driver has ended."""
    shop.receive(("a", at(0)), ("b", at(1)), ("c", at(2)))
    shop.receive(("a", at(0)), ("d", at(5)), ('{"id"', "the line is no JSON object"))
    shop.output(closes=(at(0),))
    shop.output("balance")
    shop.die()
    return shop


# --- the last run failed ----------------------------------------------------------------------------


def failed_last(*arguments: str) -> list[dict[str, Any]]:
    """The last runs that failed, as the doctor names them."""
    return doctor.main(["--grace=0", *arguments]).tables.get(failed_runs.TABLE, [])


def test_doctor_names_the_error_of_the_last_run_at_a_shell(shop: Shop) -> None:
    """With the command and the file of the whole error, until a run ends well. It is no finding."""
    resting(shop)
    with pytest.raises(ZeroDivisionError), failed_runs.remembered("run", "shop"):
        raise ZeroDivisionError("by nothing")

    result = CliRunner().invoke(app, ["doctor", "shop"])
    [end] = failed_last()

    assert result.exit_code == 1
    assert result.stdout.startswith("doctor: the last run of shop failed\n")
    assert "(onlyonce run shop): by nothing\n" in result.stdout
    assert "  next: correct its cause; the next run that ends well" in result.stdout
    assert "(onlyonce run shop): by nothing\n" in CliRunner().invoke(app, ["status"]).stdout
    assert "by nothing" not in CliRunner().invoke(app, ["status", "--json"]).stdout
    assert (end["pipeline"], end["error"]) == ("shop", "by nothing")
    assert "ZeroDivisionError: by nothing" in Path(end["whole"]).read_text()
    with failed_runs.remembered("run", "shop"):
        pass
    assert failed_last() == []
    assert "by nothing" not in CliRunner().invoke(app, ["status"]).stdout


@pytest.mark.parametrize("command", ["driver", "continuous"])
def test_doctor_names_the_error_of_the_last_run_in_the_log(shop: Shop, command: str) -> None:
    """Not once the pipeline has committed something since."""
    resting(shop)
    if command == "driver":
        shop.log.rows(
            "INSERT INTO onlyonce_private.driver_runs (dag_id, run_id, pipeline, ended_at, exit_code, why) "
            "VALUES ('shop_stream', 'old', 'shop', now() - interval '1 hour', 0, NULL), "
            "('shop_stream', 'new', 'shop', now(), 64, 'no such column')"
        )
    else:
        shop.log.rows("INSERT INTO onlyonce_private.long_runs (instance) VALUES ('shop') ON CONFLICT DO NOTHING")
        shop.log.rows(
            "UPDATE onlyonce_private.long_runs SET attempt = 1, run_id = 'new', driver = 'd', started_at = now(), "
            "heartbeat_at = now(), every = '1 s', lost_after = '1 s', ended_at = now(), exit_code = 64, why = 'no such column'"
        )

    [end] = failed_last()

    assert (end["command"], end["error"], end["exit_code"]) == ("run new", "no such column", 64)
    shop.receive(("e", at(6)))
    shop.output()
    shop.output("balance")
    shop.die()
    assert failed_last() == []


# --- nothing ----------------------------------------------------------------------------------------


def test_a_platform_that_never_ran_or_is_idle_has_no_finding(shop: Shop) -> None:
    """Nothing began, or all that began has ended; `--fix` repairs nothing."""
    assert examined() == []
    resting(shop)

    report = doctor.main(["--grace=0", "--fix", "--yes"])

    assert (report.tables["findings"], report.tables["repairs"]) == ([], [])
    assert report.title == "doctor: nothing is stuck"


@pytest.mark.parametrize("upto", ["begin", "units", "land"])
def test_a_driver_at_work_is_left_alone(shop: Shop, upto: str) -> None:
    """Whatever it has begun, in whichever of its queries, and whatever lies half written beside it."""
    shop.receive(("a", at(0)))
    shop.output(upto="units")
    shop.receive(("b", at(0)), upto=upto)
    old(shop.checkpoint("receive") / "offsets" / ".1.5f0c.tmp")
    shop.work()

    assert examined() == []


def aged(shop: Shop, minutes: int) -> None:
    """As if all that is in the log, and the driver's session, had been there for so long."""
    late = f"- interval '{minutes} minutes'"
    shop.log.rows(f"UPDATE onlyonce_private.incarnations SET started_at = started_at {late}")
    shop.log.rows(f"UPDATE onlyonce_private.units SET committed_at = committed_at {late}")
    shop.log.rows(f"UPDATE onlyonce_private.batches SET begun_at = begun_at {late}, committed_at = committed_at {late}")


@pytest.mark.parametrize("upto", ["begin", "units"])
def test_a_batch_without_progress_is_found_once_its_driver_is_as_old(shop: Shop, upto: str) -> None:
    """A driver that has just begun to replay an old batch is left alone; one that hangs as long is found."""
    shop.receive(("a", at(0)))
    name = shop.receive(("b", at(0)), upto=upto)
    shop.work()
    aged(shop, 16)
    assert examined() == []

    # No session is as old as the test needs, so the session that there is becomes that of another epoch.
    shop.log.rows("UPDATE onlyonce_private.epochs SET epoch = epoch + 1")

    finding = only(examined())
    assert (finding["finding"], finding["where"], finding["fix"]) == ("no progress", name, "no")


def test_a_driver_that_was_heard_of_a_moment_ago_is_not_dead(shop: Shop) -> None:
    """Its session may have broken while it computes: the grace time runs first."""
    shop.receive(("a", at(0)), upto="units")
    shop.die()

    assert doctor.main(["--grace=5"]).tables["findings"] == []
    assert kinds(examined()) == ["begun batch", "units of a dead epoch"]


def test_what_only_the_first_look_sees_is_no_finding(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that starts, a commit that lands between two questions."""
    resting(shop)
    name = shop.output("balance", upto="begin")
    shop.die()
    monkeypatch.setattr(time, "sleep", lambda _: shop.finish(name))

    assert examined() == []


def test_what_is_found_is_in_the_view_until_the_next_look(shop: Shop) -> None:
    """The same rows as in the report, whatever their number; before the first look there is no row."""
    view = "SELECT finding, subject, what, data, repair, fix FROM onlyonce.findings"
    resting(shop)
    assert shop.log.rows(view) == []
    name = shop.output("balance", upto="units")
    shop.die()

    found = examined()
    assert [tuple(one.values()) for one in found] == shop.log.rows(view)
    assert len(found) == 2

    shop.finish(name)
    shop.die()
    examined()
    assert shop.log.rows(view) == [(None,) * 6]


# --- what began and did not end ---------------------------------------------------------------------


@pytest.mark.parametrize("upto", ["begin", "units"])
def test_a_begun_batch_without_a_driver_is_found_until_a_run_has_ended_it(shop: Shop, upto: str) -> None:
    """With its units, and the command that goes on."""
    resting(shop)
    name = shop.output("balance", upto=upto)
    shop.die()

    found = examined()
    shop.finish(name)
    shop.die()

    assert kinds(found) == ["begun batch", *(["units of a dead epoch"] if upto == "units" else [])]
    assert {(one["where"], one["repair"], one["fix"]) for one in found} == {(name, "onlyonce run shop", "yes")}
    assert "waits" in found[0]["data"]
    assert examined() == []


def test_begun_closes_backfills_and_reprocessings_name_the_command_that_ends_them(shop: Shop) -> None:
    """Each with its own."""
    resting(shop)
    shop.log.rows(
        "INSERT INTO onlyonce_private.watermark_markers (incarnation, marker_no, epoch, kind, run_id) VALUES ('shop/receive/1', "
        "1, 1, 'ended', 'r')"
    )
    shop.log.rows(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/per_shop@x/1', 'shop', 'per_shop@x', 1, gen_random_uuid(), 'backfill')"
    )
    shop.log.rows(
        "INSERT INTO onlyonce_private.backfills (incarnation, batch_id, instance, output, epoch, run_id, asked_by, " "window_from, "
        "window_to, events_version, declaration_hash) VALUES ('shop/per_shop@x/1', 0, 'shop', 'per_shop', 1, 'r', " "'person', "
        "%s, %s, 1, 'd')",
        at(0), at(1440),
    )  # fmt: skip
    shop.log.rows(
        "INSERT INTO onlyonce_private.reprocessings (instance, kind, run_id, events_version) VALUES ('shop', "
        "'invalid', 'r', 1)"
    )

    assert {one["finding"]: one["repair"] for one in examined()} == {
        "begun watermark marker": "onlyonce run shop",
        "begun backfill": "onlyonce backfill shop --output per_shop --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z",
        "begun reprocessing": "onlyonce reprocess shop --invalid --yes",
    }


def test_begun_backfill_of_late_rows_is_a_command_that_parses() -> None:
    """Its windows start in one microsecond. Rounded to seconds, the command was refused: --from and --to were alike."""
    begun = BegunBackfill(
        "shop", "shop", "per_shop", "shop/per_shop@x/1", "r", at(0), "person", at(0), at(0) + timedelta(microseconds=1), 0, False
    )  # fmt: skip
    by, words = ends_backfill(begun)

    span = Span.of(datetime.fromisoformat(words[4]), datetime.fromisoformat(words[6]))
    assert (by, span.times) == ("backfill", (begun.window_from, begun.window_to))


def test_a_begun_batch_that_no_run_could_end_names_what_comes_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of another declaration; an incarnation of the pipeline that is refused; a pipeline that is not declared."""
    resting(shop)
    name = shop.output("balance", upto="units")
    shop.die()
    shop.log.rows("UPDATE onlyonce_private.batches SET declaration_hash = 'old' WHERE state = 'begun'")
    redeclared = examined()[0]
    shop.log.rows(
        "UPDATE onlyonce_private.batches SET declaration_hash = %s WHERE state = 'begun'", shop.declared("balance").hash
    )
    Incarnations(shop.log.database).set_state("shop/per_shop/1", "damaged")
    blocked = next(one for one in examined() if one["finding"] == "begun batch")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(settings.ROOT / "jobs" / "pipelines.py"))
    undeclared = next(one for one in examined() if one["finding"] == "begun batch")

    assert [one["where"] for one in (redeclared, blocked, undeclared)] == [name] * 3
    assert {one["fix"] for one in (redeclared, blocked, undeclared)} == {"no"}
    assert redeclared["repair"].startswith("put the declaration back as it was (old)")
    assert blocked["repair"] == "first the repair of shop/per_shop/1, then: onlyonce run shop"
    assert undeclared["repair"].startswith("declare shop again")


# --- incarnations ------------------------------------------------------------------------------------------


def gone(folder: Path) -> None:
    """It is lost."""
    shutil.rmtree(folder)


def another(folder: Path) -> None:
    """It is another query's."""
    (folder / "metadata").write_text(json.dumps({"id": "00000000-0000-4000-8000-000000000000"}))


def cut(folder: Path) -> None:
    """Its last offsets are half written."""
    (folder / "offsets" / "0").write_text("v1")


def behind(folder: Path) -> None:
    """It is a copy from before its batches."""
    for kind in ("offsets", "commits"):
        for number in ("0", "1"):
            (folder / kind / number).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("query", "damage"),
    [("per_shop", gone), ("per_shop", another), ("balance", cut), ("receive", behind)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_checkpoint_that_disagrees_is_given_up_with_yes_alone(
    shop: Shop, query: str, damage: Callable[[Path], None]
) -> None:
    """Then a new incarnation is registered, and nothing is found any more."""
    resting(shop)
    damage(shop.checkpoint(query))

    found = only(examined())
    left = only(examined("--fix"))
    after = examined("--fix", "--yes")

    assert found == left
    assert (found["finding"], found["where"], found["fix"]) == ("checkpoint", f"shop/{query}/1", "with --yes")
    assert found["repair"] == f"onlyonce reset shop/{query} --yes"
    assert after == []
    assert shop.log.rows("SELECT state FROM onlyonce_private.incarnations WHERE query = %s ORDER BY ordinal", query) == [
        ("closed",), ("live",),
    ]  # fmt: skip


def test_a_checkpoint_ahead_of_the_log_is_no_case_for_a_new_incarnation(shop: Shop) -> None:
    """The log has forgotten batches; what a new incarnation would write is there already."""
    resting(shop)
    for kind in ("offsets", "commits"):
        shop._write(shop.checkpoint("balance") / kind, 1)

    found = only(examined("--fix", "--yes"))

    assert (found["finding"], found["where"], found["fix"]) == ("checkpoint", "shop/balance/1", "no")
    assert "restored from an older backup" in found["repair"]


def test_a_damaged_incarnation_gets_a_new_incarnation_with_yes(shop: Shop) -> None:
    """Spark dropped rows in it."""
    resting(shop)
    Incarnations(shop.log.database).set_state("shop/per_shop/1", "damaged")

    found = only(examined())

    assert (found["finding"], found["repair"]) == ("damaged incarnation", "onlyonce reset shop/per_shop --yes")
    assert examined("--fix", "--yes") == []


def test_a_changed_declaration_that_stops_runs_is_found(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the plan's own rule; put back, it is gone."""
    resting(shop)
    file = tmp_path / "changed.py"
    file.write_text(
        "import dataclasses\nfrom datetime import timedelta\nfrom onlyonce.core.windows import Fixed\n"
        "from tests.support.shop import SHOP\n"
        "first, *rest = SHOP.outputs\nwider = dataclasses.replace(first, window=Fixed(timedelta(minutes=5)))\n"
        "PIPELINES = [dataclasses.replace(SHOP, outputs=(wider, *rest))]\n"
    )
    before = os.environ["ONLYONCE_PIPELINES"]
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))
    found = only(examined())
    monkeypatch.setenv("ONLYONCE_PIPELINES", before)

    assert (found["finding"], found["where"], found["repair"]) == (
        "changed declaration", "shop/per_shop/1", "onlyonce plan shop",
    )  # fmt: skip
    assert examined() == []


@pytest.mark.parametrize("ran, expected", [
    (True, ("changed declaration", "shop/per_shop/1")), (False, ("refused function", "shop")),
])  # fmt: skip
def test_a_function_that_is_missing_is_found(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ran: bool, expected: tuple[str, str]
) -> None:
    """Once, whether or not the pipeline has run: no later run begins."""
    if ran:
        resting(shop)
    file = tmp_path / "missing.py"
    file.write_text(
        "import dataclasses\nfrom tests.support.shop import SHOP\n"
        "first, *rest = SHOP.outputs\nlost = dataclasses.replace(first, "
        "transform='tests.support.shop_transforms:no_such')\n"
        "PIPELINES = [dataclasses.replace(SHOP, outputs=(lost, *rest))]\n"
    )
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))

    found = only(examined())

    assert (found["finding"], found["where"]) == expected
    assert "no_such" in found["what"]


# --- the log and the tables -------------------------------------------------------------------------


def test_a_log_that_is_older_than_the_tables_is_found_and_never_repaired_by_a_new_incarnation(shop: Shop) -> None:
    """For `events` and for an output's table; the checkpoint is ahead too, and the restore is named once for each
    incarnation."""
    resting(shop)
    commit(shop.events, EVENTS.empty_table(), "shop/receive/1/events", 7)
    commit(
        settings.tables_dir() / "shop" / "per_shop",
        pa.table({"window_start": pa.array([at(1)], INSTANT)}),
        stored_names.result_transaction(Authorities(shop.log.database).identity(), "shop/per_shop/1", "per_shop"),
        7,
    )
    shop._write(shop.checkpoint("receive") / "offsets", 7)
    shop._write(shop.checkpoint("receive") / "commits", 7)

    found = examined("--fix", "--yes")

    assert sorted((one["finding"], one["where"], one["fix"]) for one in found) == [
        ("log behind the tables", "shop/per_shop/1", "no"), ("log behind the tables", "shop/receive/1", "no"),
    ]  # fmt: skip
    assert all("restore PostgreSQL, the tables and the checkpoints from one moment" in one["repair"] for one in found)


def test_a_log_is_found_to_be_older_by_the_folders_that_it_does_not_know(shop: Shop) -> None:
    """There is `events` of a pipeline that never ran, and the checkpoint of an incarnation that never began."""
    resting(shop)
    shutil.copytree(shop.events, settings.data_dir("other") / "events")
    later = shop.checkpoint("per_shop").with_name("2")
    later.mkdir()

    found = examined("--fix", "--yes")

    assert {(one["finding"], one["where"], one["fix"]) for one in found} == {
        ("log behind the tables", str(folder), "no") for folder in (settings.data_dir("other"), later)
    }


@pytest.mark.parametrize("damage", ["older", "lost", "unreadable", "feature"])
def test_tables_that_have_not_what_the_log_vouches_for_are_found(shop: Shop, damage: str) -> None:
    """An older copy, none at all, or one that can't be read: by its log, or by a feature that is not known here."""
    resting(shop)
    last = sorted((shop.events / "_delta_log").glob("*.json"))[-1]
    if damage == "older":
        last.unlink()
    elif damage == "lost":
        shutil.rmtree(shop.events)
    elif damage == "feature":
        named = ["ofTomorrow"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": named, "writerFeatures": named}
        last.with_name(f"{int(last.stem) + 1:020}.json").write_text(json.dumps({"protocol": protocol}))
    else:
        last.write_text("{")

    found = [one for one in examined() if one["finding"] != "log behind the tables"]

    behind = damage in ("older", "lost")
    assert kinds(found) == ["tables behind the log" if behind else "unreadable table"]
    assert found[0]["fix"] == "no"


def test_units_without_a_batch_are_for_a_person(shop: Shop) -> None:
    """The batch row was taken away by hand."""
    resting(shop)
    shop.log.rows("DELETE FROM onlyonce_private.panes")
    shop.log.rows("DELETE FROM onlyonce_private.batches WHERE incarnation = 'shop/balance/1'")
    shutil.rmtree(shop.checkpoint("balance"))

    found = only(examined("--fix", "--yes"))

    assert (found["finding"], found["where"], found["fix"]) == ("units without a batch", "shop/balance/1/0", "no")


# --- the catalog ------------------------------------------------------------------------------------


def chunks(shop: Shop) -> list[Any]:
    """All of the catalog, with ids and filters."""
    rows = shop.log.rows(
        "SELECT bucket, incarnation, batch_id, partition, partitions, ids, id_count, filter FROM "
        "onlyonce_private.catalog_chunks "
        "ORDER BY 1, 2, 3, 4"
    )
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]


@pytest.mark.parametrize("damage", ["NULL", "'\\x00'::bytea", "set_byte(filter, 30, 255 - get_byte(filter, 30))"])
def test_damaged_filters_are_made_again(shop: Shop, damage: str) -> None:
    """Missing, another thing, or a byte turned over; as they were, bit by bit."""
    whole = chunks(resting(shop))
    shop.log.rows(f"UPDATE onlyonce_private.catalog_chunks SET filter = {damage} WHERE id_count > 0")

    found = only(examined())

    assert (found["finding"], found["where"], found["fix"]) == ("damaged filters", "shop", "yes")
    assert examined("--fix") == []
    assert chunks(shop) == whole


@pytest.mark.parametrize(
    ("table", "lost"),
    [
        ("catalog_chunks", "batch_id = 0"),
        ("catalog_chunks", "true"),
        ("catalog_chunks", "partition = 1"),
        ("chunk_list", "batch_id = 0"),
    ],
)
def test_lost_chunks_are_made_again_from_events(shop: Shop, table: str, lost: str) -> None:
    """As they were; a re-delivery would have been kept twice.

    A batch that has begun keeps its own. A chunk that is not listed is as lost.
    """
    resting(shop)
    shop.receive(("e", at(6)), upto="units")
    shop.die()
    with_begun = chunks(shop)
    shop.log.rows(f"DELETE FROM onlyonce_private.{table} WHERE batch_id < 2 AND ({lost})")

    found = next(one for one in examined() if one["finding"] == "uneven catalog")
    report = repaired_only("uneven catalog")

    assert (found["where"], found["fix"]) == (f"shop/receive/1, bucket {BUCKET}", "yes")
    assert "kept a second time" in found["data"]
    assert report == ["begun batch", "units of a dead epoch"]
    assert [row for row in chunks(shop) if row[6]] == [row for row in with_begun if row[6]]


def repaired_only(kind: str) -> list[str]:
    """Carry out the repairs of one kind; gives what is found afterwards."""
    platform = doctor.Platform(Database(settings.database_url()), declarations.load(), 0)
    for finding in doctor.examine(platform):
        if finding.kind == kind:
            doctor.carry_out(platform.database, finding, parse("doctor", []))
    return [finding.kind for finding in doctor.examine(platform)]


def test_merged_chunks_are_even_and_are_made_again_by_batch(shop: Shop) -> None:
    """A merge is no finding; of a lost merged chunk the parts are made again."""
    parts = chunks(resting(shop))
    while Merging(shop.log.database).merge_next("shop", Crowd(BUCKET, closed=True)):
        pass
    merged = chunks(shop)
    even = examined()
    shop.log.rows("DELETE FROM onlyonce_private.catalog_chunks")

    assert len(merged) < len(parts)
    assert even == []
    assert examined("--fix") == []
    assert [row for row in chunks(shop) if row[6]] == [row for row in parts if row[6]]


def test_ids_of_an_unknown_batch_are_for_a_person(shop: Shop) -> None:
    """Its records would be taken for duplicates; nothing is removed."""
    resting(shop)
    shop.log.rows(
        "INSERT INTO onlyonce_private.catalog_chunks SELECT instance, bucket, incarnation, 99, partition, partitions, "
        "ids, id_count, "
        "filter FROM onlyonce_private.catalog_chunks WHERE id_count > 0 LIMIT 1"
    )
    before = chunks(shop)

    found = only(examined("--fix", "--yes"))

    assert (found["finding"], found["fix"]) == ("uneven catalog", "no")
    assert chunks(shop) == before


# --- leftovers and versions -------------------------------------------------------------------------


def old(path: Path) -> Path:
    """A file of yesterday."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("half")
    os.utime(path, (time.time() - 86_400,) * 2)
    return path


def test_stale_temporaries_go_with_yes_alone_and_nothing_else_does(shop: Shop) -> None:
    """Of our own names and old; Hadoop's checksums, a producer's hidden files and what is being written stay."""
    resting(shop)
    offsets, inbox = shop.checkpoint("receive") / "offsets", settings.inbox("shop")
    stale = [
        old(offsets / ".1.0c7f.tmp"), old(offsets / "..1.0c7f.tmp.crc"), old(offsets.parent / ".metadata.0c7f"),
        old(inbox / f".reprocessed-invalid-000001.jsonl.{'0' * 32}"),
    ]  # fmt: skip
    others = [old(offsets / ".0.crc"), old(offsets.parent / ".metadata.crc"), old(inbox / ".coming.jsonl")]
    fresh = offsets / ".2.0c7f.tmp"
    fresh.write_text("half")

    found = only(examined("--fix"))
    assert all(path.exists() for path in stale)
    assert examined("--fix", "--yes") == []

    assert (found["finding"], found["fix"]) == ("stale temporaries", "with --yes")
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in [*others, fresh])


def test_views_of_another_version_are_found_and_made(shop: Shop) -> None:
    """It is the only finding until then: the other questions need the tables."""
    resting(shop)
    shop.output("balance", upto="begin")
    shop.die()
    shop.log.rows("DROP VIEW onlyonce.lag CASCADE; DELETE FROM onlyonce_private.views_made")

    found = only(examined())
    left = repaired_only("missing views")

    assert (found["finding"], found["what"], found["fix"]) == ("missing views", "the database lacks: views", "yes")
    assert left == ["begun batch"]
    assert shop.log.rows("SELECT count(*) FROM onlyonce.lag")


@pytest.mark.parametrize("names", [[], ["delta-spark_4.0_2.13-4.0.0.jar"], ["delta-spark_4.2_2.13-4.3.0.jar"]], ids=str)
def test_jars_that_do_not_fit_the_packages_are_found(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str]
) -> None:
    """None at all, of another Spark, of another Delta."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    monkeypatch.setenv("ONLYONCE_JARS", str(folder))

    found = only(examined())

    assert (found["finding"], found["repair"], found["fix"]) == ("versions", "make env", "no")


def test_without_a_folder_of_jars_spark_fetches_them_and_nothing_is_found(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `pip install` alone."""
    monkeypatch.setattr(doctor, "jar_folder", lambda: tmp_path / "none")
    monkeypatch.delenv("ONLYONCE_JARS", raising=False)

    assert doctor.table_versions() == []


# --- the command ------------------------------------------------------------------------------------


def test_the_command_explains_repairs_and_notes_it(shop: Shop) -> None:
    """Exit code 1 while something is found, 0 when nothing is left; each repair is a line of doctor.log."""
    resting(shop)
    shop.log.rows("UPDATE onlyonce_private.catalog_chunks SET filter = NULL")
    runner = CliRunner()

    found = runner.invoke(app, ["doctor"])
    fixed = runner.invoke(app, ["doctor", "--fix"])
    as_json = runner.invoke(app, ["doctor", "--json"])

    assert (found.exit_code, fixed.exit_code, as_json.exit_code) == (1, 0, 0)
    assert "damaged filters: " in found.stdout
    assert "next: onlyonce doctor --fix  (--fix does it)" in found.stdout
    assert "repair of damaged filters at shop: done" in fixed.stdout
    assert json.loads(as_json.stdout)["tables"] == {"findings": [], "repairs": []}
    [line] = (settings.home() / "logs" / "doctor.log").read_text().splitlines()
    assert json.loads(line)["outcome"] == "done"


def test_a_repair_that_fails_is_told_and_the_others_go_on(shop: Shop) -> None:
    """Ids that `events` does not have can't be made again; the filters can."""
    resting(shop)
    shop.log.rows("DELETE FROM onlyonce_private.catalog_chunks WHERE batch_id = 0")
    shop.log.rows("UPDATE onlyonce_private.catalog_chunks SET filter = NULL")
    shop.log.rows(
        "UPDATE onlyonce_private.batches SET kept = kept + 1, read = read + 1 WHERE incarnation = 'shop/receive/1'"
    )

    report = doctor.main(["--grace=0", "--fix"])

    assert kinds(report.tables["findings"]) == ["uneven catalog"]
    outcomes = {repair["finding"]: repair["outcome"] for repair in report.tables["repairs"]}
    assert outcomes["damaged filters"] == "done"
    assert outcomes["uneven catalog"].startswith("failed: batch shop/receive/1/0 has kept 4 records by the log")


def test_a_look_that_can_not_be_noted_is_told_with_all_that_it_found(shop: Shop) -> None:
    """On a database that takes no writes, as a standby or a full disk; the page has the look before it."""
    resting(shop)
    examined()
    shop.log.rows("UPDATE onlyonce_private.catalog_chunks SET filter = NULL")
    shop.log.rows(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', "
        "current_database()); END $$"
    )
    forget_connections()

    told = CliRunner().invoke(app, ["doctor", "--grace=0"])

    assert told.exit_code == 1
    assert "damaged filters" in told.output
    assert "could not be noted" in told.output
    assert shop.log.rows("SELECT found FROM onlyonce_private.looks") == [([],)]
