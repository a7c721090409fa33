"""The rows of sharded files and of requests, as Arrow tables that can be compared: floats are floats, not their text.

Who calls it: `onlyonce.testing.crashtest.results`. For a format of the user's own only the number of rows in each file
is known.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, json, parquet

from onlyonce.sinks.files.local_store import PENDING

FILE = "oo_file"
"""The final name of a row's file: so a row in another shard, pane or window is another row."""


def of_files(folder: Path, kind: str, winners: Iterable[tuple[str, str, int]]) -> pa.Table:
    """The rows of all files that count, given as (temporary, final name, rows); an empty one is a row of nulls."""
    tables = []
    for temporary, name, rows in winners:
        path = folder / PENDING / temporary
        read = READERS.get(kind)
        found = read(path.read_bytes()) if read and rows else pa.table({"rows": pa.array([rows], pa.int64())})
        tables.append(found.append_column(FILE, pa.repeat(name, found.num_rows)))
    return (
        pa.concat_tables(tables, promote_options="permissive")
        if tables
        else pa.table({FILE: pa.array([], pa.string())})
    )


def of_payloads(requests: pa.Table) -> pa.Table:
    """The rows that requests or messages hold as JSON, each with its key."""
    if not requests.num_rows:
        return requests
    lines = "\n".join(requests["payload"].to_pylist())
    return _json(lines.encode()).append_column("oo_key", requests["key"])


def _json(lines: bytes) -> pa.Table:
    # One block: what a column is, is decided by all of its values.
    options = json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(lines)))
    return _times_as_text(json.read_json(io.BytesIO(lines), options))


def _text(lines: bytes) -> pa.Table:
    return pa.table({"line": lines.decode().removesuffix("\n").split("\n")})


def _csv(content: bytes) -> pa.Table:
    return _times_as_text(csv.read_csv(io.BytesIO(content), parse_options=csv.ParseOptions(newlines_in_values=True)))


def _times_as_text(found: pa.Table) -> pa.Table:
    """A text that looks like a time is read as one; in the next file, with other rows, it may not."""
    known = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
    fields = [f.with_type(pa.string()) if any(of_time(f.type) for of_time in known) else f for f in found.schema]
    return found.cast(pa.schema(fields))


def _parquet(content: bytes) -> pa.Table:
    return parquet.read_table(io.BytesIO(content))


def _avro(content: bytes) -> pa.Table:
    import fastavro

    return pa.Table.from_pylist(list(fastavro.reader(io.BytesIO(content))))


READERS: dict[str, Callable[[bytes], pa.Table]] = {
    "jsonl": _json, "text": _text, "csv": _csv, "parquet": _parquet, "avro": _avro
}  # fmt: skip
