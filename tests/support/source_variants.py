"""The two pipelines that ship over each other source, and their input made from the same JSON lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce import settings
from onlyonce.api.pipeline import Custom, Files, Growing, Pipeline
from onlyonce.local import feed as local_feed
from tests.support.readers import Lines

KINDS = ("growing", "parquet", "avro", "custom")
AVRO = {pa.int64(): ["null", "long"], pa.string(): ["null", "string"]}
INSTANT = ["null", {"type": "long", "logicalType": "timestamp-micros"}]


def declared(kind: str) -> list[Pipeline]:
    """Both pipelines over a kind of source."""
    return [replace(FLIGHTS, source=source(kind, "flights")), replace(USER_COUNTS, source=source(kind, "user_counts"))]


def source(kind: str, name: str) -> Any:
    """With small batches; a reader of one's own finds its input in the home."""
    size = 300_000 if name == "flights" else 60_000
    return {
        "growing": Growing(max_bytes_a_batch=size), "parquet": Files(format="parquet", max_files_a_batch=3),
        "avro": Files(format="avro", max_files_a_batch=3),
        "custom": Custom(
            reader="tests.support.readers:Lines", options={"folder": str(settings.home() / "raw" / name)}, needs_dedup=True,
            max_records_a_batch=1000 if name == "flights" else 600,
        ),
    }[kind]  # fmt: skip


def feed(kind: str, name: str, *, duplicates: float, records: int, files: int) -> list[Path]:
    """Fill the source; gives the same lines as files."""
    raw, inbox = settings.home() / "raw" / name, settings.inbox(name)
    local_feed.feed_files(name, raw, duplicates=duplicates, records=records, files=files)
    paths = sorted(raw.glob("*.jsonl"))
    if kind == "growing":
        local_feed.feed_growing(name, inbox, duplicates=duplicates, records=records)
    elif kind != "custom":
        inbox.mkdir(parents=True)
        for path in paths:
            put(kind, inbox / f"{path.stem}.{kind}", Lines(str(raw)).batch([json.loads(line) for line in path.open()]))
    return paths


def put(kind: str, path: Path, rows: pa.RecordBatch) -> None:
    """One file of rows."""
    if kind == "parquet":
        parquet.write_table(pa.Table.from_batches([rows]), path, row_group_size=500)
        return
    fields = [{"name": field.name, "type": AVRO.get(field.type, INSTANT)} for field in rows.schema]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows.to_pylist())


def cut(kind: str, name: str, paths: list[Path]) -> list[list[Path]]:
    """The lines of each batch as files, in order: as the manifest says that they were cut."""
    entries = DeltaTable(str(settings.data_dir(name) / "files")).to_pyarrow_table().to_pylist()
    by_name = {path.name: path for path in paths}
    folder = settings.home() / "cut"
    folder.mkdir(exist_ok=True)
    batches: dict[int, list[Path]] = {}
    for number, entry in enumerate(sorted(entries, key=lambda one: (one["batch_no"], one["path"]))):
        if kind in ("parquet", "avro"):
            file = by_name[f"{Path(entry['path']).stem}.jsonl"]
        else:
            file = folder / f"{name}-{number}"
            begins, ends = entry["begins"], entry["ends"]
            if kind == "growing":
                file.write_bytes(Path(entry["path"]).read_bytes()[begins:ends])
            else:
                lines = by_name[entry["path"]].read_bytes().splitlines(keepends=True)
                file.write_bytes(b"".join(lines[begins:ends]))
        batches.setdefault(entry["batch_no"], []).append(file)
    return [batches[number] for number in sorted(batches)]
