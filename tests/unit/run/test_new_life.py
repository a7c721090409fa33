"""What a new life must know of the batch that the old one left, without Spark and without a server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from onlyonce.run import reset


def test_a_file_that_could_not_be_read_is_one_record(tmp_path: Path) -> None:
    """Whatever it held when it was listed; files of other batches do not count."""
    rows = [(0, "/in/a", 10), (1, "/in/b", 7), (1, "/in/gone", 100), (2, "/in/c", 3)]
    names = ("batch_no", "path", "lines")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    write_deltalake(str(tmp_path / "files"), table)

    assert reset._records(tmp_path / "files", 1, {"/in/gone": "vanished"}) == 7 + 1
    assert reset._records(tmp_path / "files", 1, {}) == 107
