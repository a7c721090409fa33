"""How many records wait in a manifest: what the progress at a terminal is measured by."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce.sources import manifest

SCHEMA = pa.schema([("batch_no", pa.int64()), ("lines", pa.int64())])


@pytest.mark.parametrize("taken_in, left", [(None, 12), (0, 9), (1, 5), (2, 0)])
def test_what_lies_behind_the_last_batch_is_left(tmp_path: Path, taken_in: int | None, left: int) -> None:
    table = tmp_path / "files"
    # Entries of batch -1 lie before the source's start, and are never read.
    for batch_no, lines in ((-1, [100]), (0, [3]), (1, [1, 3]), (2, [5])):
        rows = pa.table({"batch_no": [batch_no] * len(lines), "lines": lines}, schema=SCHEMA)
        write_deltalake(str(table), rows, mode="append")

    assert sum(manifest.after(table, taken_in, ["lines"])["lines"].to_pylist()) == left


def test_of_a_registry_without_entries_nothing_is_left(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "files"), SCHEMA)

    assert manifest.after(tmp_path / "files", None, ["lines"]).num_rows == 0
