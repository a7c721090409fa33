"""Where a record of `events` was read: the file and the position in it, or the partition of a topic and the offset.

`events` keeps no place of a kept record. Its batch says what was read, so that is read once more and searched for the
record: by its id, and by its event time, since twins may have come in one batch.

Who calls it: `culprit`. Errors: none; of what can't be read any more there is no place, and the log says why.
"""

from __future__ import annotations

from typing import Any

import structlog
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.turns import SOURCE
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.run.isolation import first_line
from onlyonce.model.sources.record_places import RecordPlace
from onlyonce.model.stored_names import BATCH_NO, OO_BATCH, OO_EVENT_TIME, OO_HIGH, OO_LINEAGE
from onlyonce.receive.blocks import exchange
from onlyonce.session import schemas
from onlyonce.sources.parse import id_columns, parse
from onlyonce.sources.parse.parse import PLACE

MOST = 10
"""Records with the id and the event time that is searched for; one of them is told."""
log = structlog.get_logger()


def of(context: RunContext, record: dict[str, Any]) -> RecordPlace | None:
    """The place of a record, given with the columns of `events` as texts; None where it is not there any more."""
    try:
        return _searched(context, record)
    except Exception as error:
        log.warning("where the record was read can't be told", what=first_line(error))
        return None


def _searched(context: RunContext, record: dict[str, Any]) -> RecordPlace | None:
    batch = Batches(context.database).find_begun(record[OO_LINEAGE], int(record[OO_BATCH])).plan
    cut = context.source().batch(context.spark, batch.source_to[BATCH_NO])
    lines, _ = cut.lines(batch.facts)
    rows = exchange.as_rows(context.spark, lines)
    pipeline = context.pipeline.of_source(batch.source_to.get(SOURCE))
    known = _known(pipeline, rows, record, batch.system_time)
    if not known:
        return None
    place = [*id_columns.salt(pipeline), *PLACE] if pipeline.by_position else PLACE
    here = rows.filter(F.xxhash64(*place).isin(known)).select(*PLACE)
    return min(filter(None, (lines.places.of(*row) for row in here.collect())), default=None)


def _known(pipeline: Pipeline, rows: DataFrame, record: dict[str, Any], system_time: Any) -> list[int]:
    """The hashes of the places at which the record can be."""
    if pipeline.by_position:
        return [int(record[OO_HIGH])]
    high, _ = id_columns.hashes(
        [*id_columns.salt(pipeline), *id_columns.strings(schemas.of(pipeline.schema), pipeline.record_id)]
    )
    same: Column = high == int(record[OO_HIGH])
    same &= F.col(OO_EVENT_TIME).cast("string") == record[OO_EVENT_TIME]
    parsed = parse.by_place(rows, pipeline, system_time).filter(same)
    return [row.oo_high for row in parsed.select(OO_HIGH).limit(MOST).collect()]
