"""Takes in a small batch in the driver: it does the tasks' work, one partition after another, without a Spark job.

A Spark job needs a part of a second before its first task works, which is most of the time of a batch of ten records.
The functions and units are those of the tasks. So the log and the rows of `events` are the same either way, and a
replay may go the other way. The files of the partitions become one of each kind of rows.

Who calls it: `receive`. Errors: those of the task, except OSError: after a warning, Spark's tasks do the batch, since
they try again. Not promised: that a small batch is taken in here. A batch with a line that is not plain, with something
that could not be read, or with messages of a topic is always Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, groupby

import pyarrow as pa
import structlog

from onlyonce import settings
from onlyonce.model.storage.location import Location, location
from onlyonce.receive import event_files
from onlyonce.receive.blocks import exchange
from onlyonce.receive.blocks.exchange import Task
from onlyonce.sources.files import line_reader
from onlyonce.sources.lines import Lines
from onlyonce.sources.parse.plain_records import Reader
from onlyonce.storage import dictionaries, stores
from onlyonce.storage.stores import arrow

log = structlog.get_logger()


def written(lines: Lines, reader: Reader | None, task: Task, *, seeded: bool) -> list[Location] | None:
    """The files that a task has written of each partition; None where the batch is for Spark.

    `seeded`: each has its seed.
    """
    if reader is None or not _is_small(lines):
        return None
    try:
        blocks = _blocks(lines, reader)
        if blocks is None:
            return None
        schema = exchange.record_schema(reader)
        found = (task(exchange.share(mine, schema, at if seeded else None)) for at, mine in enumerate(blocks))
        return _one_of_each(
            [location(path) for batch in chain.from_iterable(found) for path in batch.column("path").to_pylist()]
        )
    except OSError as error:
        log.warning("a small batch could not be taken in by the driver; Spark's tasks try", problem=str(error))
        return None


def _one_of_each(files: list[Location]) -> list[Location]:
    """One file of each kind of rows: each file that the table names is carried by every reader, however small."""
    found = []
    for _, some in groupby(sorted(files, key=str), key=lambda file: file.parent):
        parts = list(some)
        if len(parts) > 1:
            rows = pa.concat_tables([arrow.rows(part) for part in parts], promote_options="default")
            parts.append(parts[0].with_name(f"all-{parts[0].name}"))
            form = {"use_dictionary": dictionaries.worth_it(rows), "compression": "zstd", "store_schema": False}
            with arrow.writer(parts[-1], rows.schema, rows, **form) as file:
                file.write_table(rows)
                event_files.note_bytes(file, rows.nbytes)
            for part in parts[:-1]:
                stores.of(part).delete(part)
        found.append(parts[-1])
    return found


def _is_small(lines: Lines) -> bool:
    whole = lines.rows is None and not any(part.packed for part in lines.ranges)
    return whole and sum(part.end - part.start for part in lines.ranges) < settings.in_driver_bytes()


def _blocks(lines: Lines, reader: Reader) -> list[list[Callable[[], pa.Buffer]]] | None:
    """The blocks for each partition; None where a line is left that is not in one."""
    found: list[list[Callable[[], pa.Buffer]]] = [[] for _ in range(reader.partitions)]
    read = chain.from_iterable(line_reader.lines(part) for part in lines.ranges)
    for batch in reader(lines.chosen.of_batches(read)):
        if batch.column("block").null_count:
            return None
        for block, target in zip(batch.column("block"), batch.column("target").to_pylist(), strict=True):
            found[target].append(block.as_buffer)
    return found
