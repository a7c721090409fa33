"""A record that is refused, in whatever form a source gives it: no stage of receive looks at it, and all others are
kept.

`test_poison.py` has how it is found, over one form. No record is known that a stage does not survive; here each is made
to stumble over one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.core.bisect import Place
from onlyonce.engine.session import quoted
from onlyonce.engine.worker import Batches, Work
from onlyonce.receive import exchange
from onlyonce.sources.line_reader import Range
from onlyonce.sources.lines import LINE_COLUMN, Chosen, Lines
from onlyonce.sources.values import parse
from tests.support.arrivals import records_of
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW, AT = datetime(2026, 11, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"
IDS = ("a", "b", "poison", "c", "d")
BAD = IDS[2]
STUMBLED, WHY = "a stage stumbles over it", "it is refused"
PLAIN, OTHER = "id string, at timestamp", "id string, at timestamp, xs map<string, int>"
"""Of types that Arrow reads in blocks, and with one that it does not read."""
FORMS: dict[str, tuple[str, Any]] = {
    "lines in blocks": (PLAIN, Files()),
    "lines as rows": (OTHER, Files()),
    "csv": (PLAIN, Files(format="csv")),
    "columns": (PLAIN, Files(format="parquet")),
    "messages in blocks": (PLAIN, Kafka(topic="t", servers="localhost:1", key="id")),
    "messages as rows": (OTHER, Kafka(topic="t", servers="localhost:1", key="id")),
}
"""What growing files and packed ones give are lines; Avro and a reader of one's own, columns; Pub/Sub, lines."""


def lines_of(spark: SparkSession, pipeline: Pipeline, folder: Path) -> Lines:
    """The records in the form in which the source gives them."""
    if isinstance(pipeline.source, Kafka):
        rows = [(json.dumps({"at": AT}), None, 7, at, name) for at, name in enumerate(IDS)]
        return Lines([], spark.createDataFrame(rows, f"{LINE_COLUMN}, {parse.BESIDE}id string"))
    if pipeline.source.format == "parquet":
        columns = [(None, None, 7, at, None, name, datetime.fromisoformat(AT)) for at, name in enumerate(IDS)]
        return Lines([], spark.createDataFrame(columns, f"{LINE_COLUMN}, oo_rest string, {PLAIN}"))
    texts = [f"{name},{AT}" if pipeline.source.format == "csv" else json.dumps({"id": name, "at": AT}) for name in IDS]
    file = folder / "lines"
    file.write_text("".join(f"{text}\n" for text in texts))
    size = file.stat().st_size
    return Lines([Range(str(file), 7, 0, size, size)], None)


def at_lines(real: Callable[[Path, Work], Work], path: Path, read: Work) -> Work:
    """Lines become blocks by what stumbles over one that is not refused."""

    def looked_at(lines: Batches) -> Batches:
        for batch in lines:
            rows = batch.to_pylist()
            for row in rows:
                if row["oo_refused"] is None and BAD in str(row):
                    row["oo_refused"] = STUMBLED
            yield pa.RecordBatch.from_pylist(rows, schema=batch.schema)

    stored = real(path, read)
    return lambda lines: stored(looked_at(lines))


def at_rows(real: Callable[..., DataFrame], rows: DataFrame, *given: Any) -> DataFrame:
    """Rows are parsed by what stumbles over one that is not refused."""
    texts = [F.col(quoted(field.name)) for field in rows.schema if field.dataType == StringType()]
    here = F.concat_ws("|", *texts).contains(BAD) & F.col("oo_refused").isNull()
    return real(rows.withColumn("oo_refused", F.when(here, STUMBLED).otherwise(F.col("oo_refused"))), *given)


@pytest.mark.parametrize("form", FORMS)
def test_no_stage_sees_a_record_that_is_refused_or_of_the_other_half(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """By its place, whatever holds it.

    It is invalid with the reason and without its values, and the others are kept.
    """
    schema, source = FORMS[form]
    pipeline: Pipeline = replace(SHOP, schema=schema, source=source, record_id=("id",))
    lines = lines_of(spark, pipeline, tmp_path)
    monkeypatch.setattr(exchange, "write_blocks_into", partial(at_lines, exchange.write_blocks_into))
    monkeypatch.setattr(parse, "records", partial(at_rows, parse.records))
    where = [Place(*row.values()) for row in exchange.places(spark, lines).sort_by("oo_position").to_pylist()]

    def fates(chosen: Chosen) -> Counter[Any]:
        rows = records_of(spark, replace(lines, chosen=chosen), pipeline, NOW)
        return Counter((row.id, row.oo_reason) for row in rows)

    at = IDS.index(BAD)
    good = [(name, None) for name in IDS if name != BAD]
    assert fates(Chosen()) == Counter([*good, (None, STUMBLED)])
    assert fates(Chosen({where[at]: WHY})) == Counter([*good, (None, WHY)])
    assert fates(Chosen(stop=where[at])) == Counter(good[:at])
    assert fates(Chosen({where[at]: WHY}, since=where[at])) == Counter([*good[at:], (None, WHY)])
