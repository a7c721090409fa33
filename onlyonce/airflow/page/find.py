"""Find what became of a unit, a batch, a run or a record, and list late records, for the page in Airflow.

A record is searched in the Delta table `events` without a JVM (`find`): by the words that `onlyonce trace` takes, or by
`column=value`. The search reads these columns of the whole table, so a table that is too large is not searched. The
late records of an output are read from the same table (`late_records_of`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.airflow.page import read
from onlyonce.airflow.page.read import NOT_PERMITTED, Row, Sight
from onlyonce.api import load as declarations
from onlyonce.core import stored_names
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.stored_names import (
    CONTROL,
    OO_BATCH,
    OO_EVENT_TIME,
    OO_HIGH,
    OO_INCARNATION,
    OO_INGESTION_TIME,
    OO_KIND,
    OO_LOW,
    OO_PARTITION,
    OO_PLACE,
    OO_RAW,
    OO_REASON,
)
from onlyonce.records import left_out, trace
from onlyonce.sources import record_id
from onlyonce.sources.record_id import Asked
from onlyonce.tables import opening, table_files

MOST_FOUND = 20_000_000
"""How many records of one table the page searches: some seconds on a disk of today."""
SHOWN = 20

_BATCH = re.compile(r"(?P<incarnation>.+)/(?P<batch>\d{1,18})")
_PLATFORM = (
    OO_KIND,
    OO_HIGH,
    OO_LOW,
    OO_EVENT_TIME,
    OO_INGESTION_TIME,
    OO_INCARNATION,
    OO_BATCH,
    OO_PARTITION,
    OO_REASON,
    OO_PLACE,
)


@dataclass(frozen=True)
class Found:
    """The result of a search.

    units, batches, runs   rows of the page's queries `unit`, `batch` and `batches_of_run`
    records                records of `events`
    asked_for_record       whether a record was searched
    remarks                what was not searched, and why
    """

    units: list[Row] = field(default_factory=list)
    batches: list[Row] = field(default_factory=list)
    runs: list[Row] = field(default_factory=list)
    records: list[Row] = field(default_factory=list)
    asked_for_record: bool = False
    remarks: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        """Return whether nothing was found."""
        return not (self.units or self.batches or self.runs or self.records)


def batches_of_run(ask: Sight, run_id: str) -> Found:
    """Return the last batches of a run that the user may see, whichever DAG it belongs to."""
    return Found(runs=ask("batches_of_run", run_id=run_id, instances=ask.instances(), n=SHOWN))


def find(ask: Sight, text: str) -> Found:
    """Return what the log and the tables `events` have of a unique id, a batch, a run id, or a record.

    A record is given by the words that `onlyonce trace` takes, or by `column=value`. Raise Refused for a string that
    can't be split into words.
    """
    text = text.strip()
    if not record_id.HEX.fullmatch(text):
        if (of_that_id := batches_of_run(ask, text)).runs:
            return of_that_id
        units = ask("unit", unique_id=text)
        batch = _BATCH.fullmatch(text)
        batches = ask("batch", incarnation=batch["incarnation"], batch=int(batch["batch"])) if batch else []
        if units or batches:
            return Found(units=units, batches=batches)
    return _records(ask, _words(text))


def _records(ask: Sight, words: list[str]) -> Found:
    found = Found(asked_for_record=True)
    columns = _columns(words)
    searched, unlike = False, dict[str, None]()
    for pipeline in ask("pipelines", instance=None):
        instance = pipeline["instance"]
        if not ask.sees_records(instance):
            found.remarks.append(f"{instance} was not searched: {NOT_PERMITTED}")
            continue
        path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
        if not opening.any_in(path):
            continue
        table = opening.table(path)
        rows = table_files.dataset_of_events(path, table)
        by_column = bool(columns) and columns.keys() <= set(rows.schema.names)
        try:
            wanted = None if by_column else _asked(pipeline["pipeline"], words)
            condition = _all_of(rows.schema, columns) if by_column else None
        except Refused as error:  # these words are not an id, or no values of the columns, in this pipeline
            unlike[f"{error.what}; next: {error.hint}"] = None
            continue
        if not by_column and wanted is None:
            if not columns:
                found.remarks.append(
                    f"{instance} was not searched: its declaration can't be loaded here, so its id columns are not "
                    "known; next: search by column=value, and run onlyonce check"
                )
        elif too_many := beyond_reach(instance, table, MOST_FOUND):
            found.remarks.append(f"{too_many}: onlyonce trace, onlyonce sql, or Spark")
        else:
            searched = searched or by_column or not columns
            chosen = (
                trace.rows_of(instance, wanted)[:SHOWN] if wanted else rows.head(SHOWN, filter=condition).to_pylist()
            )
            found.records.extend(_record(instance, row) for row in chosen)
    if not (searched or found.records or found.remarks):
        missing = [f"no pipeline has a column {' and '.join(columns)}"] if columns else []
        found.remarks.extend(unlike or missing)
    for record in found.records:
        batch = ask("batch", incarnation=record["incarnation"], batch=record["batch"])
        record["state"] = batch[0]["state"] if batch else "not in the log"
    return found


def _asked(name: str, words: list[str]) -> Asked | None:
    """Return the ids that these words mean in a pipeline, as `onlyonce trace` does.

    Return None if the declaration can't be loaded here and the words are not the platform's own id. Raise Refused if
    the words are not an id in this pipeline.
    """
    try:
        pipeline = declarations.one(name)
    except OnlyonceError:
        own_id = len(words) == 1 and record_id.HEX.fullmatch(words[0])
        return Asked([record_id.from_hex(words[0])], {}) if own_id else None
    return record_id.asked(pipeline, words)


def beyond_reach(instance: str, table: DeltaTable, most: int) -> str | None:
    """Return why a table `events` is not searched for a web page; None if it has at most `most` records."""
    records = sum(n or 0 for n in pa.table(table.get_add_actions(flatten=True)).column("num_records").to_pylist())
    return f"{instance} has {records:,} records, too many to look through from here" if records > most else None


def _all_of(schema: pa.Schema, wanted: dict[str, Any]) -> pc.Expression:
    condition = pc.field(OO_KIND) != CONTROL
    for column, value in wanted.items():
        condition &= pc.field(column) == _as(schema.field(column).type, column, value)
    return condition


def _as(kind: pa.DataType, column: str, value: Any) -> pa.Scalar:
    try:
        if pa.types.is_timestamp(kind):
            return _instant(value).cast(kind)
        return pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Refused(
            f"{value!r} is not of type {kind}, as {column} is", hint="times are in UTC, like '2013-01-29 10:15:00'"
        ) from error


def _instant(text: str) -> pa.Scalar:
    return pc.assume_timezone(pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")), "UTC")


def _record(instance: str, row: Row) -> Row:
    values = {name: value for name, value in row.items() if not name.startswith("oo_") and value is not None}
    identity = str(record_id.RecordId(row[OO_HIGH], row[OO_LOW]))
    told = {name.removeprefix("oo_"): row[name] for name in _PLATFORM}
    return told | {"instance": instance, "id": identity, "values": values, "raw": row[OO_RAW]}


def _words(text: str) -> list[str]:
    """Return the words of a search as a shell splits them. JSON is one word."""
    if text.startswith(("{", "[")):
        return [text]
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Refused(
            f"{text!r} can't be read: {error}", hint="quote a value with blanks: when='2013-01-29 10:15:00'"
        ) from error


def _columns(words: list[str]) -> dict[str, str]:
    """Return the values by column if each word is `column=value`; none if the words are values of an id.

    Raise Refused for a column of the platform.
    """
    pairs = [word.partition("=") for word in words]
    if not all(equals and re.fullmatch(r"\w+", name) for name, equals, _ in pairs):
        return {}
    if ours := [name for name, _, _ in pairs if name.startswith("oo_")]:
        raise Refused(f"{ours[0]!r} is not a declared column", hint="carrier=UA flight=1545, each of them column=value")
    return {name: value for name, _, value in pairs}


# The first records that came too late for an output, read from the table `events` as `onlyonce late` does.


MOST_RECORDS = 2_000_000
"""How many records of one table the page judges: two seconds or so."""


@dataclass(frozen=True)
class Late:
    """How many (record, window) pairs there are, the first of them, and why there are none to be shown."""

    total: int = 0
    rows: list[Row] = field(default_factory=list)
    remark: str | None = None


LATE_NOT_PERMITTED = Late(remark=read.NOT_PERMITTED)


def late_records_of(name: str, instance: str, output: str) -> Late:
    """Return the late records in `events`, by the present declaration of pipeline `name`."""
    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    if not opening.any_in(path):
        return Late(remark="the table events can't be seen from here")
    if too_many := beyond_reach(instance, opening.table(path), MOST_RECORDS):
        return Late(remark=too_many)
    try:
        pipeline = declarations.one(name)
    except OnlyonceError as error:
        return Late(remark=f"{error.what}; next: {error.hint}")
    total, rows = left_out.late(pipeline, instance, SHOWN, output)
    return Late(total, [row | {"id": {column: row[column] for column in pipeline.record_id}} for row in rows])
