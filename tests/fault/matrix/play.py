"""The product's drivers, receive and outputs, played without a JVM.

What is the product's own here: start, manifest, batches, units, Delta transactions, closes, ends, and every
fail-point. What is played: how Spark reads, exchanges and cuts rows, and its loop over batches with its checkpoint.
A task runs in the driver's process or in a forked worker, and is tried again when it fails, as Spark does.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from onlyonce.api.pipeline import Output
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.context import OnBatch, Query, RunContext
from onlyonce.core.batch import Batch
from onlyonce.core.errors import OnlyonceError, Retryable
from onlyonce.core.locations import Location, on_disk
from onlyonce.core.records import RecordPlaces
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import Database
from onlyonce.engine import encoding
from onlyonce.engine.worker import GONE
from onlyonce.failpoints import passing
from onlyonce.outputs import query, results, stateless, windows
from onlyonce.receive import events, exchange, loop, unit
from onlyonce.sinks.base import content, held_values
from onlyonce.sinks.delta import delta_files
from onlyonce.sinks.postgres import postgres_unit, sink_postgres
from onlyonce.sinks.postgres.sink_postgres import PostgresWriter
from onlyonce.sources import source_files
from onlyonce.sources.lines import ALL, Chosen
from onlyonce.sources.values import fast_json
from onlyonce.tables import checkpoint, commit
from onlyonce.testing.suite import Context, hashed
from tests.fault.matrix import declared, frames
from tests.fault.matrix.declared import Row
from tests.fault.matrix.frames import Frame

TASK_ATTEMPTS = 4
CUT = 3
"""Rows go to a task in Arrow batches of so many."""
VERSIONS_A_BATCH = 2
"""So many versions of `events` are one batch of an output."""
MICROS, NUMBER, TEXT = pa.timestamp("us", "UTC"), pa.int64(), pa.string()
PLACED = pa.struct({"oo_file": NUMBER, "oo_position": NUMBER})
RECORD = pa.schema(
    {
        "id": TEXT, "shop": TEXT, "at": MICROS, "cents": NUMBER, "oo_event_time": MICROS, "oo_high": NUMBER, "oo_low": NUMBER,
        "oo_payload": NUMBER, "oo_reason": TEXT, "oo_raw": TEXT, "oo_unknown": TEXT, "oo_place": PLACED, "oo_code": pa.int8(),
    }
)  # fmt: skip
"""What a task of receive is given: the columns of `declared.SCHEMA`, and the platform's."""


@dataclass(frozen=True)
class Play:
    """One run: which pipeline, what of it, against which database; `workers`: tasks in processes of their own."""

    name: str
    home: str
    url: str
    kinds: Sequence[str] = ()
    suffix: str = ""
    receive: bool = True
    workers: bool = False
    mode: str = "exactly_once"


def main(play: Play) -> None:
    """What `onlyonce.run.stream` does: receive, close, outputs. Raises the platform's errors."""
    os.environ["ONLYONCE_HOME"], os.environ["ONLYONCE_DATABASE_URL"] = play.home, play.url
    pipeline = declared.declare(play.name, list(play.kinds), play.suffix, play.mode)
    database = Database(play.url)
    Incarnations(database).add_instance(play.name, play.name)
    passing("start-instance")
    session: Any = frames.Session()
    context = RunContext(session, pipeline, play.name, f"run {os.getpid()}", database)
    with _played(play):
        if play.receive:
            loop.run_once(context)
            loop.close(context, ended=True)
        for output in pipeline.outputs:
            if output.window is None:
                query.run_once(context, output)


def child(play: Play) -> int:
    """The exit code of a process that plays; what went wrong goes to stderr."""
    try:
        main(play)
    except OnlyonceError as error:
        print(type(error).__name__, error, file=sys.stderr)
        return error.exit_code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _played(play: Play) -> Any:
    """Put the stand-ins where the product's modules look for Spark."""
    tasks = _in_worker if play.workers else _here
    stand_ins: list[tuple[object, str, object]] = [
        (StructType, "fromDDL", frames.schema_of), (commit, "make", frames.make), (results, "F", frames.FUNCTIONS), (delta_files, "F", frames.FUNCTIONS), (encoding, "F", frames.FUNCTIONS),
        (source_files, "stream", lambda spark, inbox, start: Manifest(inbox.table)), (source_files, "listed", lambda batch, moved: batch),
        (source_files, "lines", _lines), (exchange, "records", _records),
        (fast_json, "plain_record_reader", lambda *given: None), (exchange, "exchanged", _exchanged), (exchange, "mapped", lambda *given: _mapped(tasks, *given)),
        (loop, "run_query", run_query),
        (events, "stream", lambda spark, path, start, files: Events(path, "", declared.PLAIN)),
        (windows, "in_stream", lambda stream, root, until: stream), (results, "applied", _applied), (stateless, "is_stateless", lambda result: True),
        # rows are for the tasks: hashes by Spark are none of the stand-in's
        (stateless, "adds_no_rows", lambda result: False), (query, "written_in_driver", lambda *_: None),
        (query, "run_query", run_query), (content, "tallied", frames.tallied), (content, "hashed", frames.hashed), (held_values, "outside", lambda schema, lengths: None),
        (PostgresWriter, "write", lambda *given: _write(tasks, *given)),
    ]  # fmt: skip
    held = mock.patch.multiple(RunContext, settings=lambda self: {"played": "yes"})
    for target, name, by in stand_ins:
        mock.patch.object(target, name, by).start()
    return held


# --- the loop over batches, with Spark's checkpoint ------------------------------------------------------------------


def run_query(query: Query, source: Any, mode: str, on_batch: OnBatch, look: Any = None) -> None:
    """The pending batch from its offsets file, then new ones, each with its two files in the checkpoint."""
    end = source.end()
    while True:
        try:
            return _loop(query, source, end, on_batch)
        except (FileExistsError, Retryable) as error:
            # Another driver wrote into the checkpoint, or removed our blocks: as the product does, on as long as our
            # epoch is the highest.
            if isinstance(error, Retryable) and GONE not in str(error):
                raise
            Incarnations(query.database).check_epoch(query.incarnation, query.driver.epoch)


def _loop(query: Query, source: Any, end: int, on_batch: OnBatch) -> None:
    while True:
        number = checkpoint.last(query.folder, "commits") + 1
        before = _offset(query.folder, number - 1)
        offset = _offset(query.folder, number) or source.after(before, end)
        if offset is None:
            return
        if _offset(query.folder, number) is None:
            stamp = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000)})
            _put(query.folder / "offsets" / str(number), f"v1\n{stamp}\n{json.dumps(offset)}")
        on_batch(source.batch(before, offset), number)
        _put(query.folder / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')


def _offset(folder: Location, number: int) -> Row | None:
    with suppress(FileNotFoundError):
        return dict(checkpoint.offsets(folder, number)[0]) if number >= 0 else None
    return None


def _put(at: Location, text: str) -> None:
    path = on_disk(at)
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    try:
        os.link(partial, path)  # whole at once, and only if it is not there, as Spark does
    finally:
        partial.unlink()


@dataclass(frozen=True)
class Manifest:
    """The table `files` as a stream: the files of one `batch_no` a batch."""

    table: Path

    def _rows(self) -> list[Row]:
        found: list[Row] = DeltaTable(str(self.table)).to_pyarrow_table().to_pylist()
        return found

    def end(self) -> int:
        return max((row["batch_no"] for row in self._rows()), default=-1)

    def after(self, before: Row | None, end: int) -> Row | None:
        number = before["batch_no"] + 1 if before else 0
        return {"batch_no": number, "reservoirVersion": number + 1} if number <= end else None

    def batch(self, before: Row | None, offset: Row) -> source_files.Listed:
        rows = [row for row in self._rows() if row["batch_no"] == offset["batch_no"]]
        names = ("path", "size", "modified_ns", "lines", "refusal")
        found = [source_files.InputFile(**{name: row[name] for name in names}) for row in rows]
        return source_files.Listed(found, offset["batch_no"], rows[0]["seen_at"])


@dataclass(frozen=True)
class Events:
    """The table `events` as a stream, whole commits, with a function over the kept rows of a batch."""

    path: Path
    function: str
    schema: StructType

    @property
    def columns(self) -> list[str]:
        names: list[str] = self.schema.names
        return names

    def end(self) -> int:
        return commit.latest(self.path)

    def after(self, before: Row | None, end: int) -> Row | None:
        version = min(before["reservoirVersion"] + VERSIONS_A_BATCH if before else VERSIONS_A_BATCH, end + 1)
        return (
            {"reservoirVersion": version, "index": -1} if not before or version > before["reservoirVersion"] else None
        )

    def batch(self, before: Row | None, offset: Row) -> Frame:
        after, upto = before["reservoirVersion"] - 1 if before else -1, offset["reservoirVersion"] - 1
        made = getattr(declared, self.function)

        def plan() -> list[Row]:
            kept = [row for row in frames.added(self.path, after, upto) if row["oo_kind"] == "kept"]
            result: list[Row] = made(kept)
            return result

        return Frame(plan, self.schema)


# --- receive ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """The lines of a batch. None of them is refused here: no record of these makes receive fail."""

    texts: list[str]
    chosen: Chosen = ALL
    places: RecordPlaces = field(default_factory=RecordPlaces)

    def shrinks(self) -> bool:
        """Files lose no lines."""
        return False


def _lines(
    spark: object, pipeline: object, files: list[source_files.InputFile], bad: dict[str, str]
) -> tuple[Texts, int]:
    assert not bad
    texts = [line for file in files for line in Path(file.path).read_text().splitlines()]
    return Texts(texts), sum(file.lines for file in files)


def _halves(name: str) -> tuple[int, int]:
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big", signed=True), int.from_bytes(digest[8:], "big", signed=True)


def _parsed(line: str) -> Row:
    try:
        record = json.loads(line)
    except ValueError:
        high, low = _halves(line)
        return {"oo_code": unit.INVALID, "oo_high": high, "oo_low": low, "oo_reason": "no JSON", "oo_raw": line}
    high, low = _halves(record["id"])
    at = datetime.fromisoformat(record["at"])
    named = record | {"at": at, "oo_event_time": at, "oo_high": high, "oo_low": low}
    return {"oo_code": unit.CANDIDATE, "oo_payload": _halves(line)[0]} | named


Partitions = list[list[Row]]


def _records(spark: object, lines: Texts, pipeline: object, time: datetime) -> Partitions:
    """All in one partition, as a file's lines are before an exchange."""
    return [[_parsed(line) for line in lines.texts]]


def _exchanged(records: Partitions, partitions: int) -> Partitions:
    seeds = [{"oo_code": unit.SEED, "oo_high": number} for number in range(partitions)]
    return [[*[r for r in records[0] if r["oo_high"] % partitions == seed["oo_high"]], seed] for seed in seeds]


def _mapped(tasks: Tasks, records: Partitions, task: exchange.Task, gives: object, shares: object = ()) -> Any:
    """The product's own task over each partition, in tasks with other numbers; the paths of what it has written."""
    numbered = enumerate(records, 1)
    found = [path for n, rows in numbered for path in tasks(lambda n=n, r=rows: _ran(task, n % len(records), r))]  # type: ignore[misc]
    return SimpleNamespace(collect=lambda: [SimpleNamespace(path=path) for path in found])


def _ran(task: exchange.Task, number: int, rows: list[Row]) -> list[str]:
    pieces = [pa.RecordBatch.from_pylist(rows[at : at + CUT], schema=RECORD) for at in range(0, len(rows), CUT)]
    with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(number)):
        return [path for batch in task(iter(pieces)) for path in batch.column("path").to_pylist()]


# --- outputs ---------------------------------------------------------------------------------------------------------


def _applied(context: RunContext, output: Output, stream: Events) -> Events:
    kind = output.name[: len(output.name.rstrip("0123456789_"))]
    function, schema = declared.KINDS[kind]
    return Events(stream.path, function, schema)


def _write(tasks: Tasks, writer: Any, batch: Batch, rows: Frame, total: Content) -> int:
    """As `PostgresWriter.write`: pinned by keys or by the whole row, one task for each partition."""
    plan, keys, table = batch.plan, writer._sink.keys, writer._table
    unit = UnitId(plan.incarnation, plan.batch_id, writer._output.name, 0)
    work = postgres_unit.Work(
        writer._database, unit, writer._query.driver.epoch, table.schema, table.name, writer._sink.write, keys, ()
    )
    passing("postgres-before-units")
    placed = [(_halves(repr([row[k] for k in keys or rows.columns]))[0] % plan.partitions, row) for row in rows.rows()]
    for number in range(plan.partitions):
        mine = [row for target, row in placed if target == number]
        task = _plain if batch.at_least_once else _unit
        tasks(lambda mine=mine, number=number, task=task: task(work, mine, number))  # type: ignore[misc]
    passing("postgres-after-units")
    if not batch.at_least_once:
        return 0
    return Units(writer._database).noted(plan.incarnation, plan.batch_id, writer._output.name) - total.rows


def _unit(work: postgres_unit.Work, rows: list[Row], partition: int) -> list[Row]:
    pieces = [hashed(piece, partition) for piece in _pieces(rows)]
    with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(partition)):
        given: Iterator[pa.RecordBatch] = postgres_unit.write_unit(work)(iter(pieces))
        return [row for batch in given for row in batch.to_pylist()]


def _plain(work: postgres_unit.Work, rows: list[Row], partition: int) -> list[Row]:
    with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(partition)):
        given: Iterator[pa.RecordBatch] = sink_postgres.write_rows(work)(iter(_pieces(rows)))
        return [row for batch in given for row in batch.to_pylist()]


def _pieces(rows: list[Row]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows[at : at + CUT]) for at in range(0, len(rows), CUT)]


# --- tasks -----------------------------------------------------------------------------------------------------------

Task = Callable[[], Any]
Tasks = Callable[[Task], Any]


def _here(task: Task) -> Any:
    """In the driver's process; tried again when it raises, as often as Spark does. So a task whose session a new
    driver has ended learns on its next attempt that it is superseded."""
    for _ in range(TASK_ATTEMPTS - 1):
        with suppress(Exception):
            return task()
    return task()


def _in_worker(task: Task) -> Any:
    """In a process of its own; tried again when it is killed or raises, as often as Spark does."""
    for attempt in range(TASK_ATTEMPTS):
        ends, begins = os.pipe()
        worker = os.fork()
        if worker == 0:
            os.close(ends)
            _work(task, begins)
        os.close(begins)
        with os.fdopen(ends, "rb") as pipe:
            told = pipe.read()
        os.waitpid(worker, 0)
        result, error = pickle.loads(told) if told else (None, RuntimeError("the worker was killed"))
        if error is None:
            return result
        if attempt == TASK_ATTEMPTS - 1:
            raise error
    raise AssertionError("the last attempt returns or raises")


def _work(task: Task, pipe: int) -> None:
    try:
        told = pickle.dumps((task(), None))
    except BaseException as error:
        told = pickle.dumps((None, error))
    with os.fdopen(pipe, "wb") as file:
        file.write(told)
    os._exit(0)
