"""Replay: run the functions over the records of one committed receive batch, to explain a result or an error.

It writes nothing. The results differ from the run's if windows have records of other batches too.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onlyonce import settings
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog.batches import Batches, Received
from onlyonce.commitlog.removals import Removals
from onlyonce.core import retention, stored_names
from onlyonce.core.errors import FunctionFails, Refused
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.engine import driver_rows, session
from onlyonce.engine.failures import translate
from onlyonce.lookups import tables
from onlyonce.outputs import culprit, results

NOTHING = "nothing was written"


def replay(
    pipeline: Pipeline, instance: str, number: int, output: str | None, limit: int, master: str | None
) -> Report:
    """Return the rows that each output gives for a batch's records, at most `limit` of each.

    Raise Refused for an unknown batch, and FunctionFails at the function's line.
    """
    roots = [pipeline.root_of(pipeline.output(output))] if output else pipeline.roots()
    batch, gone = _batch(instance, number)
    spark = session.start(f"onlyonce replay {instance}", master)
    rows = results.kept_rows(
        spark, pipeline, settings.data_location(instance) / stored_names.EVENTS_FOLDER, [batch]
    ).persist()
    shown: dict[str, list[dict[str, Any]]] = {}
    try:
        facts = {"batch": f"{batch.incarnation}/{batch.batch_id}", "records": rows.count(), "written": "nothing"}
        for root in roots:
            shown |= _rows_of(spark, pipeline, root, rows, output, limit)
    except Exception as error:
        raise translate(error) from error
    finally:
        rows.unpersist()
    warnings = [f"{gone} records of the batch are removed from `events` (keep_events)"] if gone else []
    return Report(f"{instance}: what the functions give of one batch", "replay", facts, shown, warnings)


def _rows_of(
    spark: SparkSession, pipeline: Pipeline, root: Output, rows: DataFrame, output: str | None, limit: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the first rows of the outputs that one output's function makes. Raise FunctionFails with its name."""
    try:
        return {
            name: _shown(name, frame, limit)
            for name, frame in results.results_of(pipeline, root, rows, _newest(spark, pipeline, root)).items()
            if output in (None, name)
        }
    except Exception as error:
        found = translate(error)
        if not isinstance(found, FunctionFails):
            raise
        named = culprit.of_function(pipeline, root, found)
        raise FunctionFails(named.what, data=NOTHING, hint=named.hint) from error


def _shown(name: str, frame: DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return the first rows of an output. Raise Refused if they take more bytes than the driver holds."""
    first = frame.limit(limit).persist()  # so that the function runs once for both jobs
    try:
        most = first.count()
        rows = [row[0] for row in driver_rows.measured(first, most).collect()]
    finally:
        first.unpersist()
    if None in rows:
        raise Refused(
            f"output {name}: a row takes more than {driver_rows.BYTES // most:,} bytes, its share of what this "
            f"command holds for {most:,} rows",
            data=NOTHING,
            hint="ask for fewer rows: --limit",
        )
    return [row.asDict(recursive=True) for [row] in rows]


def _newest(spark: SparkSession, pipeline: Pipeline, root: Output) -> results.Frames:
    """Return the newest version of each lookup: only batches of outputs use lookups, and this is one of receive."""
    lookups = pipeline.lookups(root)
    return tables.as_of(spark, lookups, tables.newest(lookups, root)).frames


def _batch(instance: str, number: int) -> tuple[Received, int]:
    """Return a committed batch of receive, and how many of its records are removed. Raise Refused if all are."""
    database = Database(settings.database_url())
    batches = Batches(database).receive_batch(instance, number)
    if not batches:
        raise Refused(
            f"{instance} has no committed batch {number} of receive",
            data=NOTHING,
            hint=f"onlyonce batches {instance} shows the existing batches",
        )
    [batch] = batches
    gone = Removals(database).removed_of(batch.incarnation, batch.batch_id, "kept")
    if gone and gone == batch.kept:
        kept = Removals(database).kept_from(instance)
        raise Refused(
            f"all records of batch {number} of {instance} are removed from `events` (keep_events)",
            data=NOTHING,
            hint=f"there are records from {retention.said(kept or 0)} on: choose a later batch",
        )
    return batch, gone
