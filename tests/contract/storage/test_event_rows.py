"""Reading `events` without Spark: a process that has looked at the first rows of many ends as any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from onlyonce.tables import table_files
from tests.support.platform import ROOT

LOOK = (
    "import sys; from pathlib import Path; from onlyonce.tables import table_files; "
    "print(table_files.dataset_of_events(Path(sys.argv[1])).head(3).num_rows)"
)
FILES, ROWS = 24, 20_000


def events(folder: Path) -> Path:
    """A table of many files, with far more rows than a look takes."""
    path = folder / "events"
    rows = pa.table({"oo_kind": ["kept"] * ROWS, "n": range(ROWS), "raw": ["x" * 40] * ROWS})
    for _ in range(FILES):
        write_deltalake(path, rows, mode="append", partition_by=["oo_kind"])
    return path


def test_a_look_at_the_first_rows_ends_well(tmp_path: Path) -> None:
    """Several times: with the file system of delta-rs nearly each such process crashed at its exit, or did not end."""
    path = events(tmp_path)
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", LOOK, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_the_rows_are_those_of_the_version_that_is_asked_for(tmp_path: Path) -> None:
    """With the values of the partition, which are in no file."""
    path = events(tmp_path)
    before = DeltaTable(str(path), version=1)
    assert table_files.dataset_of_events(path).count_rows() == FILES * ROWS
    assert table_files.dataset_of_events(path, before).count_rows() == 2 * ROWS
    assert table_files.dataset_of_events(path).head(1)["oo_kind"].to_pylist() == ["kept"]
