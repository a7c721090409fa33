"""Takes in a small batch in the driver: it does the tasks' work, one partition after another, without a Spark job.

A Spark job needs a part of a second before its first task works, which is most of the time of a batch of ten records. The functions, units
and files are those of the tasks. So the log and `events` are the same either way, and a replay may go the other way.

Who calls it: `receive`. Errors: those of the task, except OSError: after a warning, Spark's tasks do the batch, since they try again.
Not promised: that a small batch is taken in here. A batch with a line that is not plain, with something that could not be
read, or with messages of a topic is always Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pyarrow as pa
import structlog

from onlyonce import settings
from onlyonce.receive import exchange
from onlyonce.receive.exchange import Task
from onlyonce.sources.files import line_reader
from onlyonce.sources.lines import Lines
from onlyonce.sources.parse.plain_records import Reader

log = structlog.get_logger()


def written(lines: Lines, reader: Reader | None, task: Task, *, seeded: bool) -> list[Path] | None:
    """The files that a task has written of each partition; None where the batch is for Spark. `seeded`: each has its seed."""
    if reader is None or not _is_small(lines):
        return None
    try:
        blocks = _blocks(lines, reader)
        if blocks is None:
            return None
        schema = exchange.record_schema(reader)
        found = (task(exchange.share(mine, schema, at if seeded else None)) for at, mine in enumerate(blocks))
        return [Path(path) for batch in chain.from_iterable(found) for path in batch.column("path").to_pylist()]
    except OSError as error:
        log.warning("a small batch could not be taken in by the driver; Spark's tasks try", problem=str(error))
        return None


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
