"""What a new incarnation must know of the batch that the old one left, without Spark and without a server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from onlyonce.api.joins_and_state import FROM_START
from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.windows import Fixed
from onlyonce.run import reset

WINDOW = {"window": Fixed(timedelta(minutes=1)), "watermark_delay": timedelta(0), "sink": Delta()}
EARLY = {"panes": "early", "sink": Delta(write="upsert", keys=("window_start",))}


def test_a_file_that_could_not_be_read_is_one_record(tmp_path: Path) -> None:
    """Whatever it held when it was listed; files of other batches do not count."""
    rows = [(0, "/in/a", 10), (1, "/in/b", 7), (1, "/in/gone", 100), (2, "/in/c", 3)]
    names = ("batch_no", "path", "lines")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    write_deltalake(str(tmp_path / "files"), table)

    assert reset._records(tmp_path / "files", 1, {"/in/gone": "vanished"}) == 7 + 1
    assert reset._records(tmp_path / "files", 1, {}) == 107


@pytest.mark.parametrize(
    ("options", "start", "seen"),
    [
        (WINDOW, {}, "no gap: closed windows stay"),
        (WINDOW, {"first_window": 0}, "windows that start before 1970-01-01T00:00:00Z stay as they are"),
        (WINDOW | EARLY, {}, "no row is lost, but open windows may be too small"),
        (EARLY, {"version": 0}, "no row is lost, but totals may be too small"),
        (WINDOW | {"panes": "early", "pane_column": "pane", "sink": Delta()}, {}, "no gap: closed windows stay"),
        ({"sink": Delta()}, {}, "no gap: the rows that are written stay"),
        ({"sink": Delta()}, {FROM_START: True}, "a gap: the next run removes all rows"),
        (None, {}, "not known"),
    ],
)
def test_new_incarnation_says_what_readers_see(
    options: dict[str, Any] | None, start: dict[str, Any], seen: str
) -> None:
    """By the kind of the output, and by where its incarnation begins."""
    root = None if options is None else Output(name="sums", transform="m:f", **options)
    assert reset.seen_by_readers(root, start).startswith(seen)
