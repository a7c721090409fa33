"""What a run has read of a manifest is what the manifest says, whoever has written to it since; and past entries are
read once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from onlyonce.api.pipeline import Delta, Files, Growing, Output, Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.locations import Location
from onlyonce.engine import session
from onlyonce.sources import discovery, listing, manifest, source_files
from onlyonce.sources.discovery import Registered
from onlyonce.sources.manifest import Reading
from onlyonce.tables import commit, opening
from onlyonce.tables.commit import Own

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LOOKS, SEED = 25, 20261126
START = datetime(2026, 1, 1, tzinfo=UTC)


class Registry:
    """A manifest of a source, to which drivers append; and a run's reading of it, which notes when it reads the
    whole."""

    def __init__(self, table: Path, source: Files | Growing) -> None:
        self.pipeline = Pipeline(
            name="shop", source=source, schema="id string, at timestamp", record_id=("id",), event_time="at",
            outputs=(Output(name="all", transform="a:b", sink=Delta()),),
        )  # fmt: skip
        self.table, self.columns, self.dice = table, source_files._schema(self.pipeline), random.Random(SEED)
        self.batches, self.commits, self.wholes = 0, 0, list[Location]()
        opening.make(table, session.schema_of(self.columns).json(), [], commit.KEEP_ALL | {"delta.appendOnly": "false"})
        made = discovery.reading(table, self.pipeline)
        self.reading = Reading(table, self._whole, made._columns, made._more)

    def _whole(self, at: Location) -> Registered:
        self.wholes.append(at)
        return discovery.registered(at, self.pipeline)

    def append(self, to: Own) -> None:
        """One to three batches of some files; some were registered before."""
        rows = [row for _ in range(self.dice.randint(1, 3)) for row in self._batch()]
        self.commits += 1
        assert manifest.append(
            to, self.columns, rows, Driver("shop/receive/1", 1, 1, "run"), self.commits, "shop/files"
        )

    def _batch(self) -> list[tuple[object, ...]]:
        number, rows = self.batches, []
        self.batches += 1
        for file in sorted(self.dice.sample(range(40), self.dice.randint(1, 4))):
            known = {
                "batch_no": number, "path": f"/in{file % 3}/{file}.jsonl", "size": 100 * number, "modified_ns": number, "lines": 1,
                "cuts": [100 * number], "quoted_within": 10,
                "refusal": "it is odd" if self.dice.random() < 0.1 else None, "identity": f"inode {file}", "begins": 0, "ends": 100 * number,
                "mark": f"mark {number}", "seen_at": START + timedelta(seconds=number), "root": f"/in{file % 3}",
            }  # fmt: skip
            rows.append(tuple(known[column.split()[0]] for column in self.columns.split(", ")))
        return rows

    def compare(self) -> None:
        """What the run knows with what the manifest says."""
        found, said = self.reading.look(), discovery.registered(self.table, self.pipeline)
        assert (found, found.roots) == (said, said.roots)


@pytest.mark.parametrize("source", [Files(), Growing()])
def test_look_by_look_a_run_knows_what_the_registry_says_and_reads_each_entry_once(
    tmp_path: Path, source: Files | Growing
) -> None:
    """By the appends of this run and of another, none, one or two between two looks."""
    there = Registry(tmp_path / "files", source)
    there.compare()
    for _ in range(LOOKS):
        for _ in range(there.dice.randint(0, 2)):
            there.append(Own(there.table))
        if there.dice.random() < 0.5:
            there.reading.look()
            there.append(there.reading.table)
        there.compare()
    assert len(there.wholes) == 1


def test_where_entries_went_or_files_were_written_again_a_run_reads_the_whole(tmp_path: Path) -> None:
    there = Registry(tmp_path / "files", Files())
    there.compare()
    there.append(Own(there.table))
    there.append(Own(there.table))
    DeltaTable(str(there.table)).optimize.compact()
    there.compare()
    assert len(there.wholes) == 2
    there.append(Own(there.table))
    (there.table / opening.LOG / f"{DeltaTable(str(there.table)).version():020}.json").rename(tmp_path / "gone")
    gone = there.reading._added(there.reading.table.table.version(), there.reading.table.table.version() + 1)
    assert gone is None


def test_of_objects_a_run_knows_the_last_mark_of_each() -> None:
    """Some batches of a manifest at a time, against all at once."""
    dice, parts = random.Random(SEED), list[pa.RecordBatch]()
    schema = pa.schema([("batch_no", pa.int64()), ("path", pa.string()), ("mark", pa.string())])
    for number in range(30):
        names, prefix = dice.sample(range(50), 5), dice.randint(0, 3)
        rows = {
            "batch_no": [number] * 5,
            "path": [f"s3://lake/in{prefix}/{n}" for n in names],
            "mark": [f"{number} {n}" for n in names],
        }
        parts.append(pa.RecordBatch.from_pydict(rows, schema=schema))
    whole, known, at = listing.known_objects(parts), listing.known_objects([]), 0
    while at < len(parts):
        some = dice.randint(1, 4)
        known, at = listing.known_objects(parts[at : at + some], known), at + some
    assert (known.names.tolist(), known.marks.tolist()) == (whole.names.tolist(), whole.marks.tolist())
