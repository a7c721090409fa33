"""A source of the user's own: how far each of its parts reaches, and the records of a part by number.

The contract is docs/how-to/own-source.md. The driver asks for the ends and stores the ranges. Tasks read the ranges,
each with a new reader. If a reader yields another number of rows than requested, it breaks the contract, and the run
stops with InvariantBroken. Any error that the reader raises stops the run; the next run tries again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from onlyonce.api.pipeline import Pipeline
from onlyonce.api.resolve import SOURCES, named, own_class
from onlyonce.api.sources import Custom
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.records import Damaged
from onlyonce.engine import worker
from onlyonce.sources import record_id
from onlyonce.sources.growing import Known
from onlyonce.sources.listing import InputFile
from onlyonce.sources.values import coercion

TASK = 1 << 16
"""How many records one task reads."""


class Reader(Protocol):
    """The methods of the user's class. A record is its part and number, which mean the same record for ever."""

    def ends(self) -> Mapping[str, int]:
        """Return for each part the number after its last record that can be read now.

        It never decreases; parts may be added.
        """

    def read(self, part: str, start: int, end: int) -> Iterable[pa.RecordBatch]:
        """Return the records with the numbers start … end - 1, in order: the same rows at every call."""


def new_ranges(source: Custom, known: Mapping[str, Known]) -> list[InputFile]:
    """Return the new records of each part, in ranges that fit into a batch."""
    return [
        InputFile(
            part,
            0,
            0,
            min(at + source.max_records_a_batch, end) - at,
            None,
            part,
            at,
            min(at + source.max_records_a_batch, end),
        )
        for part, (start, end) in _news(source, known).items()
        for at in range(start, end, source.max_records_a_batch)
    ]


def batched(ranges: Iterable[InputFile], source: Custom) -> Iterator[list[InputFile]]:
    """Yield groups of ranges with at most max_records_a_batch records; no group has a part twice."""
    group: list[InputFile] = []
    for one in ranges:
        full = sum(other.lines for other in group) + one.lines > source.max_records_a_batch
        if group and (full or len(group) == source.max_files_a_batch or group[-1].path == one.path):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def read(spark: SparkSession, pipeline: Pipeline, ranges: Iterable[InputFile]) -> DataFrame:
    """Return the records of some ranges, with the platform's columns (`coercion`) and the declared ones."""
    source = pipeline.source
    assert isinstance(source, Custom)
    tasks = [(one.path, at, min(at + TASK, one.ends)) for one in ranges for at in range(one.begins, one.ends, TASK)]
    # Pickled by value: the workers need not be able to import the module of the declarations.
    make = cloudpickle.dumps(factory(source))
    needed = [*pipeline.record_id, pipeline.event_time]
    ddl = f"{coercion.BESIDE}, {pipeline.schema}"
    wanted = coercion.declared(pipeline.schema)

    def of_task(mine: tuple[str, int, int]) -> Iterator[pa.RecordBatch]:
        return _rows(cloudpickle.loads(make)(), *mine, wanted, needed, source.max_record_bytes)

    return worker.each(spark, tasks, of_task, ddl)


def factory(source: Custom) -> Callable[[], Any]:
    """Return a function that makes a reader. Raise Refused if its class does not exist."""
    reader = own_class(source.reader, SOURCES, data="nothing was read")
    found = named(
        reader, f"the reader {source.reader!r}",
        hint="it is 'module:Class', the module importable from the folder of the declarations or installed",
    )  # fmt: skip
    # Only the named module: modules that it imports need not be the user's own.
    cloudpickle.register_pickle_by_value(sys.modules[reader.partition(":")[0]])
    options = dict(source.options)
    return lambda: found(**options)


def ends(source: Custom) -> dict[str, int]:
    """Return how far each part reaches now, sorted by its name. Raise Refused for an invalid end."""
    told = factory(source)().ends()
    wrong = [
        part for part, end in told.items() if not isinstance(part, str) or not part or type(end) is not int or end < 0
    ]
    if wrong:
        raise Refused(
            f"{source.reader}: ends() gives {told[wrong[0]]!r} for the part {wrong[0]!r}",
            data="nothing was read",
            hint="a dict of texts that are not empty to whole numbers from 0 on",
        )
    return dict(sorted(told.items()))


def _news(source: Custom, known: Mapping[str, Known]) -> dict[str, tuple[int, int]]:
    news = {}
    for part, end in ends(source).items():
        start = known[part].ends if part in known else 0
        if end < start:
            raise Refused(
                f"{source.reader}: the part {part!r} ends at {end}, but was read up to {start}",
                data="nothing was read or written; if a number now means another record, records would be lost or "
                "kept twice",
                hint="a part must never get shorter: if it was begun again, give it a new name",
            )
        news[part] = (start, end)
    return news


def _rows(
    reader: Reader, part: str, start: int, end: int, wanted: pa.Schema, needed: list[str], most: int
) -> Iterator[pa.RecordBatch]:
    place, at = coercion.Place(f"record %s of part {part}", record_id.of_file(part), most), start
    try:
        for batch in reader.read(part, start, end):
            there = batch.schema.names
            coercion.check_names(there, needed)
            for one in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
                yield from coercion.fit(one, there, wanted, place, at)
                at += one.num_rows
    except Damaged as error:
        raise Refused(
            f"the columns of part {part!r} do not fit the declaration: {error}",
            data="nothing of this batch is committed",
            hint="change the reader or the declared schema, then run the same command again",
        ) from error
    if at != end:
        raise InvariantBroken(
            f"part {part!r}: read({start}, {end}) gave {at - start} rows, and not {end - start}",
            data="the batch is not committed; records would be lost or kept twice",
            hint="correct the reader; `onlyonce conform` shows whether it keeps the contract",
        )
