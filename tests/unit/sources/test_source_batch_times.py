"""The turns of several sources: ingestion time never moves back, whenever each source was registered and whichever run
was killed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from onlyonce.sources.all_sources import Several
from tests.support.two_sources import pipeline

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Source:
    """The manifest of a source: (number, records, ingestion time) of each batch."""

    found: list[tuple[int, int, datetime]] = field(default_factory=list)
    manifest: str = "files"

    def register(self, minute: int, batches: int) -> None:
        """List what is new at that time."""
        self.found += [(len(self.found) + n, 1, START + timedelta(minutes=minute)) for n in range(batches)]

    def batches_after(self, number: int | None) -> list[tuple[int, int, datetime]]:
        """See `sources._Files`."""
        return [one for one in self.found if number is None or one[0] > number]


def give_source_batches(several: Several, table: Path) -> list[datetime]:
    """Append the turns that a look gives; return their times."""
    names = ("batch_no", "source", "source_batch_no", "records", "known", "seen_at")
    rows = [dict(zip(names, row, strict=True)) for row in several._new()]
    if rows:
        write_deltalake(str(table), pa.Table.from_pylist(rows), mode="append")
    return [row["seen_at"] for row in rows]


@pytest.mark.parametrize("seed", range(20))
def test_ingestion_time_of_turns_never_moves_back(seed: int, tmp_path: Path) -> None:
    """A run that was killed before it gave turns leaves batches of an earlier time to the next one, of one source or of
    both."""
    random, table = Random(seed), tmp_path / "source_batches"
    sources = {"web": Source(), "till": Source()}
    several = Several(pipeline(), "shop", table, sources)
    times: list[datetime] = []
    write_deltalake(
        str(table),
        pa.Table.from_pylist(
            [
                {
                    "batch_no": 0,
                    "source": "web",
                    "source_batch_no": -1,
                    "records": 0,
                    "known": json.dumps({}),
                    "seen_at": START,
                }
            ]
        ),
    )
    for minute in range(1, 8):
        for source in sources.values():
            source.register(minute, random.randint(0, 3))
        if random.random() < 0.5:  # else it is killed before the turns
            times += give_source_batches(several, table)
    times += give_source_batches(several, table)

    assert len(times) == sum(len(source.found) for source in sources.values())
    assert times == sorted(times)
