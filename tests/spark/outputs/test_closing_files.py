"""An output of files that keeps no state reads the records of the windows that close, and not all that there ever
were."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.outputs import at_close
from onlyonce.sinks.files import finalize
from tests.spark.run.test_long_run import sales
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

BLOCKS = 3
MINUTE = timedelta(minutes=1)


def oracle() -> Counter[Any]:
    """Each sale in both windows that hold it."""
    found: Counter[Any] = Counter()
    for record in [record for block in range(BLOCKS) for record in sales(block)]:
        start = datetime.fromisoformat(record["at"]).replace(second=0, tzinfo=None)
        found.update({(f"{start:%Y-%m-%d %H:%M}", record["id"]), (f"{start - MINUTE:%Y-%m-%d %H:%M}", record["id"])})
    return found


def test_a_batch_opens_the_files_that_may_have_rows_of_the_windows_that_it_closes(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """However many files `events` has by then; with windows that overlap, each record is in its two windows.

    Spark reads them: the driver, which reads few, has a condition of its own.
    """
    platform = new_platform("tests/support/file_records.py")
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="1", ONLYONCE_IN_DRIVER_BYTES="0")
    real, opened = at_close.closed_by, []

    def looked_at(*given: Any) -> Any:
        rows = real(*given)
        opened.append(len(rows.inputFiles()))
        return rows

    monkeypatch.setattr(at_close, "closed_by", looked_at)
    for block in range(BLOCKS):
        platform.put("shop", f"{block}.jsonl", sales(block))
    platform.run("shop", "--close")
    finalize.main(["shop"])

    assert len(opened) > BLOCKS, "a batch for each of receive's, and one for the close"
    assert max(opened) <= 2, opened
    rows: Counter[Any] = Counter()
    for path in (settings.files_dir() / "shop" / "records").glob("*.csv"):
        with path.open(newline="") as file:
            rows.update((row["window_start"][:16].replace("T", " "), row["id"]) for row in csv.DictReader(file))
    assert rows == oracle()
