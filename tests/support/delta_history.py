"""The history of a Delta table as its owner leaves it."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable, write_deltalake


def clean_history(path: Path) -> None:
    """Remove the log's entries up to a checkpoint, as Delta does after `delta.logRetentionDuration`."""
    write_deltalake(str(path), DeltaTable(str(path)).to_pyarrow_table().slice(0, 0), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    last = DeltaTable(str(path)).version()
    for version in range(last):
        (path / "_delta_log" / f"{version:020}.json").unlink()
