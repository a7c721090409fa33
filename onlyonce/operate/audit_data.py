"""The audit of the data itself: compares what the tables hold with what the log says.

Without a JVM. `onlyonce audit --data`.

| compared                          | with                                                    |
|-----------------------------------|---------------------------------------------------------|
| rows of `events` by batch and fate | the batches of receive; rows of unknown batches are found too |
| rows of each output's table by window | the windows that the log says a reader must see      |
| all rows of an output without windows that appends | the sum of its units                    |
| files with final names, by size; the last ones by checksum | what their units have recorded |
| ids of the last batches in `events` | the record catalog, and the ids of the rows' own columns |

Tables are read file by file, and only the columns that are counted. So memory grows with the number of batches and
windows, and not of rows. A difference counts only if a second look finds it too, since the stream goes on meanwhile.

Who calls it: `onlyonce.operate.audit`. Errors: Retryable while a database is away. Not promised: tables for which the
log does not say how many rows they must have (an increment, an upsert without its window, a changed target, unfinished
work), and rows that were sent outside. The report names them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce import settings
from onlyonce.catalog import packed
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.collector import Collector
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.commitlog.sinks.files import Files
from onlyonce.commitlog.views import Views
from onlyonce.database.connect import Database
from onlyonce.declare.outputs.sent import Sent
from onlyonce.declare.outputs.sinks import FileSink
from onlyonce.declare.pipeline import Output, Pipeline, target
from onlyonce.model import stored_names
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.operate import retaining
from onlyonce.model.operate.dropping import Place, written
from onlyonce.model.sinks.shards import Winner
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import CONTROL, KEPT, OO_BATCH, OO_HIGH, OO_KIND, OO_LINEAGE, OO_LOW
from onlyonce.operate.sink_rows import Windows, in_delta, in_iceberg, in_mysql, in_postgres
from onlyonce.sinks.files import final_files
from onlyonce.sources.parse import record_id
from onlyonce.storage import event_rows, log_entries

SECOND_LOOK_SECONDS = 2.0
SAMPLE = 3
"""Batches whose ids are compared one by one."""
SAMPLED_ROWS = 1000
"""Rows of each of them whose id is computed again from their columns."""

Watch = Callable[[str], None]


def examine(database: Database, declared: Mapping[str, Pipeline], watch: Watch) -> tuple[list[str], list[str]]:
    """(disagreements that two looks have found, what could not be compared and why)."""
    left_out: list[str] = []
    first = list(_look(database, declared, watch, left_out))
    if not first:
        return [], left_out
    time.sleep(SECOND_LOOK_SECONDS)
    again = set(_look(database, declared, watch, []))
    return [finding for finding in first if finding in again], left_out


def _look(database: Database, declared: Mapping[str, Pipeline], watch: Watch, left_out: list[str]) -> Iterator[str]:
    for instance, name in Collector(database).instances():
        events = settings.data_location(instance) / stored_names.EVENTS_FOLDER
        if log_entries.any_in(events):
            watch(f"{instance}: events")
            yield from _events(database, instance, events)
            left_out += _removed(database, instance)
            watch(f"{instance}: a sample of ids")
            yield from _sample(database, instance, events, declared.get(name))
        pipeline = declared.get(name)
        if pipeline is None:
            left_out.append(f"{instance}: no pipeline {name!r} is declared, so its tables are not known")
            continue
        for output in pipeline.outputs:
            watch(f"{instance}: {output.name}")
            yield from _output(database, instance, pipeline, output, left_out)


def _events(database: Database, instance: str, events: Location) -> Iterator[str]:
    """Rows by batch and fate. What a begun batch has landed is neither too much nor too little."""
    there: Counter[tuple[str, int, str]] = Counter()
    rows = event_rows.dataset(events)
    columns = [OO_LINEAGE, OO_BATCH, OO_KIND]
    for part in rows.to_batches(columns=columns, filter=pc.field(OO_KIND) != CONTROL):
        for group in pa.Table.from_batches([part]).group_by(columns).aggregate([([], "count_all")]).to_pylist():
            there[group[OO_LINEAGE], group[OO_BATCH], group[OO_KIND]] += group["count_all"]
    known, removed = Views(database).rows("received", instance=instance), Removals(database).counts(instance)
    for batch in known:
        for fate in ("kept", "invalid", "remnant"):
            key = (batch["lineage"], batch["batch"], fate)
            gone, going = removed.get(key, (0, 0))
            found, meant = there.pop(key, 0), (batch[fate] or 0) - gone
            if batch["state"] == "committed" and found not in (meant, meant - going):
                less = f", {gone} of them removed" if gone else ""
                yield (
                    f"{batch['lineage']}/{batch['batch']}: the log says {batch[fate] or 0} {fate}{less}, `events` "
                    f"has {found} ({events})"
                )
    for (lineage, number, fate), count in sorted(there.items()):
        yield f"{lineage}/{number}: `events` has {count} {fate}, the log knows no such batch ({events})"


def _removed(database: Database, instance: str) -> Iterator[str]:
    """What can't be counted any more: only that it is gone, and how much it was."""
    kept, counts = Removals(database).kept_from(instance), Removals(database).counts(instance)
    rows = sum(removed for removed, _ in counts.values())
    if kept is not None or rows:
        old = f", all from before {retaining.said(kept)} among them" if kept is not None else ""
        yield (
            f"{instance}: {rows} rows of `events` are removed{old}; the log has their numbers by batch "
            "(onlyonce.removals)"
        )


def _output(
    database: Database, instance: str, pipeline: Pipeline, output: Output, left_out: list[str]
) -> Iterator[str]:
    """The rows of each window in the output's table."""
    root = output.made_beside or output.name
    asked = {"instance": instance, "query": root, "output": output.name}
    [state] = Views(database).rows("comparable", **asked)
    windowed = pipeline.root_of(output).has_windows
    if why := _incomparable(output, state, windowed):
        left_out.append(f"{instance}: {output.name}: {why}")
        return
    meant = _meant(database, instance, output, windowed)
    if meant is None:
        left_out.append(f"{instance}: {output.name}: a backfill left its rows as they were")
        return
    place = target(pipeline, output)
    if isinstance(output.sink, FileSink):
        winners = Files(database).current(instance, output.name)
        yield from (f"{instance}: {output.name}: {what}" for what in final_files.disagreements(winners))
        there = _recorded(winners)
    else:
        [place] = written(instance, [{"outputs": {output.name: {"target": place}}}])
        try:
            there = _count(Place(place), windowed)
        except Refused as error:
            left_out.append(f"{instance}: {output.name}: {error.what}")
            return
    for window in sorted(meant.keys() | there.keys(), key=str):
        if meant[window] != there[window]:
            of = f"window [{window[0]}, {window[1]})" if window[0] else "all of it"
            yield (
                f"{instance}: {output.name}: {of}: the log says {meant[window]} rows, the table has "
                f"{there[window]} ({place})"
            )


def _meant(database: Database, instance: str, output: Output, windowed: bool) -> Windows | None:
    """The rows that a reader must see, by window; None where a backfill was not to change them."""
    if not windowed:
        asked = {"instance": instance, "query": output.made_beside or output.name, "output": output.name}
        [row] = Views(database).rows("written_in_all", **asked)
        return Counter({(None, None): row["rows"]})
    rows = Views(database).rows("written", instance=instance, output=output.name)
    if output.on_backfill in ("skip", "resend") and any(row["generation"] for row in rows):
        return None
    return Counter({(row["window_start"], row["window_end"]): row["rows"] for row in rows})


def _incomparable(output: Output, state: Mapping[str, Any], windowed: bool) -> str | None:
    """Why a table can't be compared with the log, if it can't. Pure."""
    if isinstance(output.sink, Sent):
        return "what was sent outside can't be counted from here; onlyonce.outbox has each answer"
    if state["begun"]:
        return "a batch or backfill is under way"
    if state["written_again"]:
        return "at least once: rows were written again, as the log says"
    if state["targets"] > 1:
        return "it was written to more than one target"
    if output.sink.write == "increment" and "window_start" not in output.sink.keys:
        return "an increment adds to rows that don't say their window"
    if output.sink.write == "history":
        return "a history has no row for a delete"
    if output.sink.write == "upsert" and (
        state["as_they_come"] or not (windowed and "window_start" in output.sink.keys)
    ):
        return "an upsert puts rows over those of other windows or batches"
    if output.sink.write == "upsert" and output.is_early:
        return "of an early pane the log knows only the rows that have changed last"
    return None


def _count(place: Place, windowed: bool) -> Windows:
    if place.kind == "delta":
        return in_delta(settings.table_location(place.where), windowed)
    if place.kind == "iceberg":
        return in_iceberg(place, windowed)
    return in_mysql(place, windowed) if place.kind == "mysql" else in_postgres(place, windowed)


def _recorded(winners: list[Winner]) -> Windows:
    """The rows of the files that a reader must take, by window."""
    found: Windows = Counter()
    for winner in winners:
        found[winner.window_start, winner.window_end] += winner.rows
    return found


def _sample(database: Database, instance: str, events: Location, pipeline: Pipeline | None) -> Iterator[str]:
    """The ids of the last batches: those in the catalog, and those that the rows' own columns give."""
    rows = event_rows.dataset(events)
    for batch in Views(database).rows("sample", instance=instance, n=SAMPLE):
        name = f"{batch['lineage']}/{batch['batch']}"
        chosen = (
            (pc.field(OO_KIND) == KEPT)
            & (pc.field(OO_LINEAGE) == batch["lineage"])
            & (pc.field(OO_BATCH) == batch["batch"])
        )
        table = rows.to_table(columns=[OO_HIGH, OO_LOW], filter=chosen)
        ids = tuple(table.column(half).to_numpy().astype(np.int64).view(np.uint64) for half in (OO_HIGH, OO_LOW))
        known = np.zeros(table.num_rows, dtype=bool)
        for chunk in Chunks(database).in_bucket(instance, batch["lineage"], batch["bucket"]):  # type: ignore[misc]
            known |= packed.member(packed.unpack(chunk), (ids[0], ids[1]))
        if not known.all():
            yield f"{name}: {int((~known).sum())} ids of rows in `events` are not in the catalog ({events})"
        if pipeline is not None and (wrong := _wrong_ids(pipeline, rows, chosen)):
            yield f"{name}: {wrong} of its rows have other values than their id says ({events})"


def _wrong_ids(pipeline: Pipeline, rows: Any, chosen: pc.Expression) -> int:
    """How many of the first rows have an id that their columns don't give; 0 where only Spark knows the text of a
    column."""
    columns = list(pipeline.record_id)
    if not set(columns) <= set(rows.schema.names):
        return 0
    wrong = 0
    for row in rows.scanner(columns=[*columns, OO_HIGH, OO_LOW], filter=chosen).head(SAMPLED_ROWS).to_pylist():
        values = {name: _text(row[name]) for name in columns}
        try:
            wrong += record_id.RecordId(row[OO_HIGH], row[OO_LOW]) not in record_id.of_any_source(pipeline, values)
        except OnlyonceError:
            return 0
    return wrong


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
