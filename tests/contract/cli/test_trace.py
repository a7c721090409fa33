"""One record's trace: each fate, the unit, the windows, and what is said of an id that nobody has seen. No JVM."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from typer.testing import CliRunner

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.cli import app
from onlyonce.core.errors import Refused
from onlyonce.records import left_out
from onlyonce.sources.record_id import of_values
from tests.contract.shop import BUCKET, Shop, at, shop

__all__ = ["shop"]
runner = CliRunner()


def traced(*arguments: str, code: int = 0) -> dict[str, Any]:
    """What `onlyonce trace shop … --json` says."""
    result = runner.invoke(app, ["trace", "shop", *arguments, "--json"])
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout))


def only(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The one row."""
    [row] = rows
    return row


def test_a_kept_record_has_its_batch_its_unit_and_the_run(shop: Shop) -> None:
    """As the commit log has them."""
    batch = shop.receive(("a", at(0)), ("b", at(1)), ("c", at(2)))

    fate = only(traced("b")["tables"]["fates"])

    unit, committed_at, run_id = shop.log.rows(
        "SELECT u.unique_id, u.committed_at, u.run_id FROM onlyonce.commits u WHERE unique_id LIKE %s AND EXISTS "
        "(SELECT 1 FROM onlyonce_private.catalog_chunks c WHERE c.partition = u.partition AND c.batch_id = u.batch "
        "AND position(decode(%s, 'hex') IN c.ids) > 0)",
        f"{batch}/events/%", str(of_values(shop.pipeline, {"id": "b"})),
    )[0]  # fmt: skip
    assert (fate["fate"], fate["batch"], fate["state"]) == ("kept", batch, "committed")
    assert (fate["unit"], fate["unit_committed_at"], fate["run_id"]) == (unit, committed_at.isoformat(), run_id)


def test_a_window_is_not_read_then_open_then_final(shop: Shop) -> None:
    """As the output goes on; with the generation once it is final, and for the outputs made from it too."""
    shop.receive(("a", at(0.5)))

    def windows(output: str) -> tuple[str, str, Any]:
        row = only([row for row in traced("a")["tables"]["windows"] if row["output"] == output])
        assert (row["window_start"], row["window_end"]) == (at(0).isoformat(), at(1).isoformat())
        return row["fate"], row["state"], row["generation"]

    assert windows("per_shop") == ("in time", "not read yet", None)
    shop.output()
    assert windows("per_shop") == windows("total") == ("in time", "open", None)
    assert windows("balance") == ("in time", "not read yet", None)
    shop.output(closes=(at(0),))
    assert windows("per_shop") == ("in time", "final", 0)


def test_a_late_record_is_late_for_each_output_whose_window_was_closed(shop: Shop) -> None:
    """By the frontier that it met; it waits for a backfill."""
    shop.receive(("a", at(10)))
    shop.receive(("late", at(0)), ("in time", at(9.5)))

    windows = traced("late")["tables"]["windows"]

    assert {(row["output"], row["fate"], row["state"]) for row in windows} == {
        (output, "late", "waits for a backfill") for output in ("per_shop", "total", "balance")
    }
    assert {row["fate"] for row in traced("in time")["tables"]["windows"]} == {"in time"}


def test_a_late_record_that_a_backfill_has_read_is_folded_in(shop: Shop) -> None:
    """By the generation that readers see, if it has read the version of `events` with the record."""
    shop.receive(("a", at(10)))
    shop.receive(("late", at(0)))
    shop.output(closes=(at(0),))
    shop.log.rows(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/per_shop@x/1', 'shop', 'per_shop@x', 1, gen_random_uuid(), 'backfill')"
    )
    for number, version in enumerate((0, 1)):
        shop.log.rows(
            "INSERT INTO onlyonce_private.backfills (incarnation, batch_id, instance, output, epoch, state, run_id, " "asked_by, "
            "window_from, window_to, events_version, declaration_hash, committed_at) VALUES ('shop/per_shop@x/1', %s, "
            "'shop', 'per_shop', 1, 'committed', 'run', 'person', %s, %s, %s, 'd', now())",
            number, at(0), at(1), version,
        )  # fmt: skip
        shop.log.rows(
            "INSERT INTO onlyonce_private.panes VALUES ('shop', 'per_shop', %s, %s, %s, true, 1, " "'shop/per_shop@x/1', %s, 'd')",
            at(0), at(1), number + 1, number,
        )  # fmt: skip
        state = "waits for a backfill" if version == 0 else "included by a backfill"
        row = only([row for row in traced("late")["tables"]["windows"] if row["output"] == "per_shop"])
        assert (row["state"], row["generation"]) == (state, number + 1)
        shown = {
            row["output"]: row["included"] for row in json.loads(runner.invoke(app, ["late", "shop", "--json"]).stdout)
        }
        assert shown == {"per_shop": version == 1, "balance": False}


def test_an_invalid_record_is_found_by_the_values_on_its_line(shop: Shop) -> None:
    """Its line may be cut short; a longer id that begins alike is another."""
    shop.receive(
        ('{"id": "bad", "at": tomor', "the line is no JSON object"), ('{"id":"bad2"}', "the event time is missing")
    )

    fate = only(traced("bad")["tables"]["fates"])

    assert (fate["fate"], fate["reason"]) == ("invalid", "the line is no JSON object")
    assert fate["raw"] == '{"id": "bad", "at": tomor'


WITH_A_VALUE = ["reason", "raw", "ingestion_time", "incarnation", "batch"]


def test_invalid_records_are_blocks_with_the_next_step(shop: Shop) -> None:
    """One layout, however short the rows are; JSON has no remark."""
    shop.receive(("x", "the line is blank"), ('{"id"', "the line is no JSON object"))

    shown = runner.invoke(app, ["invalid", "shop"])
    as_json = runner.invoke(app, ["invalid", "shop", "--json"])

    first, second = shown.stdout.split("\n\n")
    for block in (first, second):
        names = [line.strip().partition(":")[0] for line in block.strip().splitlines()]
        assert [name for name in names if name != "without a value"] == WITH_A_VALUE
    assert "in all rows" not in shown.stdout
    assert "onlyonce drop shop --tables" in shown.stderr  # nothing is kept yet
    assert len(json.loads(as_json.stdout)) == 2
    assert as_json.stderr == ""
    shop.receive(("a", at(0)))
    assert "onlyonce reprocess shop --invalid" in runner.invoke(app, ["invalid", "shop"]).stderr


def test_header_among_invalid_records_is_named(shop: Shop) -> None:
    """Of the batches that are asked for only."""
    csv = Pipeline(
        name="shop", source=Files(format="csv"), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=Delta()),
    )  # fmt: skip
    first = shop.receive(("id,at", "column at is no timestamp"))
    second = shop.receive(("7,x", "column at is no timestamp"))
    parted = [(one.rpartition("/")[0], int(one.rpartition("/")[2])) for one in (first, second)]

    assert "header=True" in left_out.read_otherwise(csv, "shop", {parted[0]})
    assert left_out.read_otherwise(csv, "shop", {parted[1]}) == ""


def test_common_reason_counts_reasons_that_differ_in_values(shop: Shop) -> None:
    """Of the batches that are asked for only."""
    blank = ("one", "the line is blank"), ("two", "the line is blank")
    times = [(f"t{n}", f"column at is no timestamp: {n}") for n in range(3)]
    first = shop.receive(*blank, *times)
    second = shop.receive(("three", "the line is blank"))
    parted = [(one.rpartition("/")[0], int(one.rpartition("/")[2])) for one in (first, second)]

    assert left_out.common_reason("shop", {parted[0]}) == ("column at is no timestamp: 0", 3)
    assert left_out.common_reason("shop", {parted[1]}) == ("the line is blank", 1)
    assert left_out.common_reason("shop", {(parted[0][0], 99)}) is None
    assert left_out.common_reason("other", set(parted)) is None


def test_invalid_line_with_the_id_as_text_may_be_it(shop: Shop) -> None:
    """As a line of CSV, or a field by another name. It is not certain, so the exit code stays 1."""
    shop.receive(("bad;tomorrow;7\r", "column at: 'tomorrow' is no time"), ("bad2;tomorrow;7", "column at: no time"))

    found = traced("bad", code=1)

    line = only(found["tables"]["may_be"])
    assert (line["raw"], line["reason"]) == ("bad;tomorrow;7", "column at: 'tomorrow' is no time")
    assert found["title"] == "shop: never seen, may be an invalid line"
    assert "not certain" in only(found["warnings"])


def test_a_duplicate_has_the_one_row_of_its_first_delivery(shop: Shop) -> None:
    """And it is said that any other delivery left no row."""
    first = shop.receive(("a", at(0)))
    shop.receive(("a", at(0)), ("b", at(1)))

    found = traced("a")

    assert only(found["tables"]["fates"])["batch"] == first
    assert "any other delivery of it was counted as a duplicate" in found["warnings"][0]
    assert found["facts"]["catalog"].startswith(f"{first}, partition")


def test_an_expired_record_is_told_from_a_kept_record(shop: Shop) -> None:
    """It came from below the collection floor, into no window."""
    shop.receive(("old", at(0)))
    shop.log.rows("UPDATE onlyonce_private.pipelines SET gc_floor = %s", BUCKET + 5)
    shop.receive(("new", at(0)))

    found = traced("new")

    assert only(found["tables"]["fates"])["fate"] == "expired"
    assert "windows" not in found["tables"]


def test_an_id_that_was_never_seen_has_exit_code_1_and_is_told_what_it_may_be(shop: Shop) -> None:
    """A duplicate, or one that was collected, is spoken of."""
    shop.receive(("a", at(0)))

    found = traced("nobody", code=1)

    assert found["tables"] == {}
    assert "never seen" in found["title"]
    assert any("duplicate" in text and "collected" in text for text in found["warnings"])
    assert "onlyonce run shop --dry-run" in found["warnings"][0]


def test_nothing_that_ever_ran_is_no_error(shop: Shop) -> None:
    """There is no table `events` yet."""
    assert traced("a", code=1)["facts"]["catalog"].startswith("not there")


def test_an_id_in_the_catalog_without_a_row_is_of_a_batch_that_has_not_ended(shop: Shop) -> None:
    """Killed between its units and its commit."""
    shop.receive(("z", at(0)))
    batch = shop.receive(("a", at(0)), upto="units")

    found = traced("a")

    assert found["facts"]["catalog"].startswith(f"{batch}, partition")
    assert "onlyonce doctor" in found["warnings"][0]


def test_rows_of_a_batch_that_has_not_ended_or_is_unknown_say_so(shop: Shop) -> None:
    """The log is the authority."""
    batch = shop.receive(("a", at(0)), upto="land")
    begun = traced("a")
    shop.log.rows("DELETE FROM onlyonce_private.batches WHERE incarnation || '/' || batch_id = %s", batch)
    unknown = traced("a")

    assert only(begun["tables"]["fates"])["state"] == "begun"
    assert begun["warnings"][0] == f"batch {batch} is begun: its rows count when it is committed"
    assert only(unknown["tables"]["fates"])["state"] == "unknown"
    assert "the log does not know batch" in unknown["warnings"][0]


@pytest.mark.parametrize("form", ["value", "object", "list", "hexadecimal"])
def test_an_id_may_be_given_as_value_json_or_hexadecimal(shop: Shop, form: str) -> None:
    """All of them find the same record."""
    shop.receive(("a-1", at(0)))
    asked = {
        "value": "a-1", "object": '{"id": "a-1", "shop": "s"}', "list": '["a-1"]',
        "hexadecimal": str(of_values(shop.pipeline, {"id": "a-1"})),
    }[form]  # fmt: skip

    assert only(traced(asked)["tables"]["fates"])["fate"] == "kept"


def test_the_table_for_people_has_fate_and_windows(shop: Shop) -> None:
    """Not only JSON."""
    shop.receive(("a", at(0)))

    result = runner.invoke(app, ["trace", "shop", "a"])

    assert result.exit_code == 0
    assert "shop: kept" in result.stdout
    assert "per_shop" in result.stdout


def test_too_many_values_are_refused_with_the_columns(shop: Shop) -> None:
    """It says which they are."""
    result = runner.invoke(app, ["trace", "shop", "a", "b"])

    assert result.exit_code == Refused.exit_code
    assert "known by 1 value(s) (id), but 2 were given" in result.stderr


def test_lost_table_of_events_is_named_as_the_audit_names_it(shop: Shop) -> None:
    """For an id that the catalog has, for one that it has not, and where the records of a fate are listed."""
    shop.receive(("a", at(0)))
    shutil.rmtree(shop.events)
    lost = f"the log says that 1 rows were written to `events`, and there is no table {shop.events}"

    assert traced("a")["warnings"] == traced("z", code=1)["warnings"]
    assert lost in str(traced("a")["warnings"])
    assert lost in runner.invoke(app, ["invalid", "shop"]).stdout
