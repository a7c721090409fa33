"""What status, late and expired say of records that are in no result, in words."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from onlyonce.api import load as declarations
from onlyonce.cli import app
from onlyonce.commitlog.backfills import Backfills, Request
from onlyonce.core.backfill import Span
from onlyonce.core.batch import to_micros
from onlyonce.outputs import backfill
from tests.contract.shop import Shop, at, shop

__all__ = ["shop"]

runner = CliRunner()


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    monkeypatch.setenv("ONLYONCE_READER_URL", shop.log.url)


@pytest.mark.parametrize("invalid", [0, 1])
def test_status_shows_invalid_records_if_there_are_any(shop: Shop, invalid: int) -> None:
    shop.receive(("a", at(0)), *[('{"id"', "the line is no JSON object")] * invalid)

    [row] = json.loads(runner.invoke(app, ["status", "--json"]).stdout)
    shown = runner.invoke(app, ["status"]).stdout

    assert row["invalid"] == invalid
    assert ("invalid" in shown) == bool(invalid)


@pytest.mark.parametrize("fate", ["late", "expired", "invalid", "rejected"])
def test_no_records_of_a_fate_is_one_sentence(shop: Shop, fate: str) -> None:
    """With the name of the pipeline, and the number of records that could have the fate."""
    before = runner.invoke(app, [fate, "shop"]).stdout
    shop.receive(("a", at(0)), ("b", at(1)))

    after = runner.invoke(app, [fate, "shop"]).stdout

    assert before == f"shop has no {fate} records: it has not received any record yet\n"
    assert after == f"shop has no {fate} records, of 2 received\n"


@pytest.mark.parametrize("command", ["commits", "late", "status", "doctor", "deliver"])
def test_unknown_bounded_run_is_refused(shop: Shop, command: str) -> None:
    """It was an empty table."""
    shop.receive(("a", at(0)))

    result = runner.invoke(app, [command, "shop@7"])

    assert (result.exit_code, result.stdout) == (64, "")
    assert "no bounded run 'shop@7'" in result.stderr
    assert "shop has none: `onlyonce run shop --bounded` makes one" in result.stderr


def test_backfill_between_borders_names_the_command_to_type(shop: Shop) -> None:
    """One warning for outputs of the same windows; a named output stays named."""
    pipeline = declarations.load()["shop"]
    starts = "a warning"
    for named in (None, "per_shop"):
        roots = backfill.chosen(pipeline, named)
        span = backfill.span_of(roots, at(0.5), at(2))
        [starts] = [one for one in backfill.between_borders(pipeline, roots, span) if "The nearest borders" in one]
        command = f"onlyonce backfill shop --from {at(0):%Y-%m-%dT%H:%M:%SZ} --to {at(2):%Y-%m-%dT%H:%M:%SZ}"
        assert starts.endswith(command + (f" --output {named}" if named else ""))
        assert backfill.dry_run(shop.log.database, pipeline, roots, span).warnings[0] == starts
        assert backfill.report(shop.log.database, pipeline, span, "run", [starts]).warnings == [starts]


def test_late_only_without_times_names_its_windows(shop: Shop) -> None:
    """By words, not by the first and the last time that there is."""
    pipeline = declarations.load()["shop"]
    roots = backfill.chosen(pipeline, None)
    span = backfill.span_of(roots, None, None, late_only=True)

    for report in (
        backfill.dry_run(shop.log.database, pipeline, roots, span, late_only=True),
        backfill.report(shop.log.database, pipeline, span, "run"),
    ):
        assert report.facts["range"] == "all windows that have late records"
        assert not {"from", "to"} & report.facts.keys()


def test_dry_run_without_late_windows_says_so(shop: Shop) -> None:
    pipeline = declarations.load()["shop"]
    roots = backfill.chosen(pipeline, "per_shop")
    span = backfill.span_of(roots, None, None, late_only=True)

    report = backfill.dry_run(shop.log.database, pipeline, roots, span, late_only=True)

    assert report.warnings == [
        "no window has late records that are not in its result: nothing would be recomputed or written"
    ]


def test_backfill_shows_the_end_of_its_last_window(shop: Shop) -> None:
    """Not the microsecond after its start, which the log has: it was shown as the start."""
    shop.receive(("a", at(0)))
    shop.output(closes=(at(0),))
    start = to_micros(at(0))
    asked = Request("shop", "per_shop", Span(start, start + 1), "person", "d1")
    driver = Backfills(shop.log.database).open_incarnation(asked, "again")
    Backfills(driver.session(shop.log.database)).begin(driver, asked, 10**6)

    report = backfill.report(shop.log.database, declarations.load()["shop"], asked.span, "again")

    [row] = report.tables["backfills"]
    assert (row["window_from"], row["window_to"]) == (at(0), at(1))
