"""Test whether a source keeps its contract: `onlyonce conform`, see docs/how-to/own-source.md.

The source is read in pieces, each piece twice, and then at once: all must give the same records with the same ids. It
uses the product's own code (manifest, ranges, readers, ids) with scratch manifests, and changes nothing of the
pipeline. All ids are held in memory, so try it on a part of the data, which must not change meanwhile.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Custom, Files, Growing, Kafka, Pipeline
from onlyonce.api.sources import EARLIEST
from onlyonce.asked import parse
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import BATCH_NO, OO_HIGH, OO_LOW, OO_REASON
from onlyonce.engine.failures import translate
from onlyonce.receive import exchange
from onlyonce.sources import folders, source_files
from onlyonce.sources.discovery import Inbox
from onlyonce.sources.source_files import Listed
from onlyonce.tables import opening

Rows = Counter[tuple[str, int, str | None]]
"""(id, hash of the content, why it is invalid)."""
PIECES = 5
AT_ONCE = 1 << 60
ALL: dict[str, Any] = {"start": EARLIEST}
NOBODY = Driver("conformance", 0, 0, "conformance")


@dataclass(frozen=True)
class Verdict:
    """How many records a source has given, and what is wrong with it."""

    records: int
    batches: int
    problems: list[str]


def check(spark: SparkSession, pipeline: Pipeline, scratch: Path) -> Verdict:
    """Read all of a pipeline's source both ways and compare. `scratch` is an empty folder of the caller's.

    Raise Refused for a pipeline whose source can't be tested.
    """
    if pipeline.sources:
        raise Refused(
            f"{pipeline.name} has several sources, and a conformance check reads one",
            hint="declare the one that you mean in a pipeline of its own",
        )
    now = datetime.now(UTC)
    problems: list[str] = []
    whole: Rows = Counter()
    pieces: Rows = Counter()
    batches = 0
    try:
        for listed in _batches(spark, _of_size(pipeline, AT_ONCE), scratch / "bounded", now):
            whole += _rows(spark, pipeline, listed, now, problems, scratch)
        size = max(1, _weight(scratch / "bounded", pipeline) // PIECES)
        for listed in _batches(spark, _of_size(pipeline, size), scratch / "stream", now):
            first, again = (_rows(spark, pipeline, listed, now, problems, scratch) for _ in range(2))
            if first != again:
                problems.append(f"a replay of batch {listed.batch_no} gives other records: {_differ(first, again)}")
            pieces += first
            batches += 1
    except Exception as error:
        known = translate(error)
        if not isinstance(known, InvariantBroken):
            raise known from error
        problems.append(str(known))
        return Verdict(pieces.total(), batches, list(dict.fromkeys(problems)))
    if whole != pieces:
        problems.append(f"read at once and read in batches are not the same records: {_differ(whole, pieces)}")
    ids = Counter({key: 0 for key, _, _ in whole})
    for (key, _, reason), number in whole.items():
        ids[key] += number if reason is None else 0
    if not _may_repeat(pipeline) and (twice := [key for key, number in ids.items() if number > 1]):
        problems.append(
            f"{len(twice)} ids are those of several records, {twice[0]} for one, and it says it needs no dedup"
        )
    return Verdict(whole.total(), batches, list(dict.fromkeys(problems)))


def _may_repeat(pipeline: Pipeline) -> bool:
    """Return whether two records may have one id: then the later one is a re-delivery."""
    source = pipeline.source
    return source.needs_dedup if isinstance(source, Custom) else not pipeline.by_position


def _of_size(pipeline: Pipeline, size: int) -> Pipeline:
    source = pipeline.source
    if isinstance(source, Growing):
        return replace(pipeline, source=replace(source, max_bytes_a_batch=size, start=EARLIEST))
    if isinstance(source, Custom):
        return replace(pipeline, source=replace(source, max_records_a_batch=size, start=EARLIEST))
    if isinstance(source, Kafka):
        raise Refused(
            f"{pipeline.name} reads a topic, whose reader is the platform's own",
            hint="onlyonce conform tries sources of files, and your own readers",
        )
    return replace(pipeline, source=replace(source, max_files_a_batch=size, **ALL if isinstance(source, Files) else {}))


def _batches(spark: SparkSession, pipeline: Pipeline, scratch: Path, now: datetime) -> Iterator[Listed]:
    source = pipeline.source
    assert not isinstance(source, Kafka)
    table = scratch / pipeline.name / stored_names.FILES_MANIFEST
    folder = settings.inbox(pipeline.name, source.inbox)
    inbox = Inbox(pipeline.name, folder, table, source.max_files_a_batch, pipeline, folders=folders.of(pipeline))
    source_files.register(spark, inbox, NOBODY, now)
    entries = spark.read.format("delta").load(str(table))
    last = entries.agg(F.max(BATCH_NO)).collect()[0][0]
    for number in range(0 if last is None else last + 1):
        yield source_files.listed(entries.filter(F.col(BATCH_NO) == number))


def _weight(scratch: Path, pipeline: Pipeline) -> int:
    entries = opening.table(scratch / pipeline.name / stored_names.FILES_MANIFEST).to_pyarrow_table().to_pylist()
    kind = pipeline.source
    if not isinstance(kind, Growing | Custom):
        return len(entries)
    return sum(entry["ends"] - entry["begins"] for entry in entries)


def _rows(
    spark: SparkSession, pipeline: Pipeline, listed: Listed, now: datetime, problems: list[str], scratch: Path
) -> Rows:
    bad = source_files.unreadable(pipeline, listed.files)
    lines, count = source_files.lines(spark, pipeline, listed.files, bad)
    with exchange.block_folder(scratch / "blocks", NOBODY.epoch) as folder:
        rows = _as_rows(exchange.rows(spark, lines, pipeline, now, folder))
    if rows.total() != count:
        problems.append(
            f"batch {listed.batch_no} has {rows.total()} records, and {count} were counted when it was listed"
        )
    return rows


def _as_rows(records: DataFrame) -> Rows:
    key = F.concat(F.lower(F.lpad(F.hex(OO_HIGH), 16, "0")), F.lower(F.lpad(F.hex(OO_LOW), 16, "0")))
    table = records.select(key.alias("key"), "oo_payload", OO_REASON).toArrow()
    return Counter(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def _differ(one: Rows, other: Rows) -> str:
    missing, more = one - other, other - one
    return f"{missing.total()} are missing and {more.total()} are other, of {one.total()}"


# The entry point.


def main(argv: list[str]) -> Report:
    """Check one pipeline's source; the report's warnings are what is wrong. Raise the platform's errors.

    All records that the source has now are read three times. Only a scratch folder is written, which is removed.
    """
    asked = parse("conform", argv)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)

    from onlyonce.engine import session

    spark = session.start(f"onlyonce conform {pipeline.name}", asked.master)
    with tempfile.TemporaryDirectory(prefix="onlyonce-conform-") as scratch:
        found = check(spark, pipeline, Path(scratch))
    facts = {"records": found.records, "batches": found.batches, "keeps its contract": not found.problems}
    return Report(f"{pipeline.name}: its source, read at once, in batches and again", "", facts, {}, found.problems)
