"""A record that a stage of receive does not survive, in whatever form a source gives it: it is found by halves, refused, and all others are kept.

No record is known that does so; here a stage is made to fail at one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from onlyonce.declare.kafka import Kafka
from onlyonce.declare.pipeline import Files, Pipeline
from onlyonce.model.poison import Place
from onlyonce.receive import block_files, exchange, poison
from onlyonce.receive.exchange import Parts
from onlyonce.session.names import quoted
from onlyonce.session.worker import Batches, Work
from onlyonce.sources.chosen import Chosen
from onlyonce.sources.files.line_reader import Range
from onlyonce.sources.lines import LINE, Lines
from onlyonce.sources.parse import parse, plain_records
from tests.support.arrivals import records_of
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW, AT = datetime(2026, 11, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"
IDS = ("a", "b", "poison", "c", "d")
BAD = IDS[2]
WHY = "nobody thought of this record"
PLAIN, OTHER = "id string, at timestamp", "id string, at timestamp, xs array<int>"
"""Of types that Arrow reads in blocks, and with one that only Spark's parser reads."""
FORMS: dict[str, tuple[str, Any]] = {
    "lines in blocks": (PLAIN, Files()),
    "lines by Spark's parser": (OTHER, Files()),
    "csv": (PLAIN, Files(format="csv")),
    "columns": (PLAIN, Files(format="parquet")),
    "messages in blocks": (PLAIN, Kafka(topic="t", servers="localhost:1", key="id")),
    "messages by Spark's parser": (OTHER, Kafka(topic="t", servers="localhost:1", key="id")),
}
"""What growing files and packed ones give are lines; Avro and a reader of one's own, columns; Pub/Sub, lines."""


def lines_of(spark: SparkSession, pipeline: Pipeline, folder: Path) -> Lines:
    """The records in the form in which the source gives them."""
    if isinstance(pipeline.source, Kafka):
        rows = [(json.dumps({"at": AT}), None, 7, at, name) for at, name in enumerate(IDS)]
        return Lines([], spark.createDataFrame(rows, f"{LINE}, {parse.BESIDE}id string"))
    if pipeline.source.format == "parquet":
        columns = [(None, None, 7, at, name, datetime.fromisoformat(AT)) for at, name in enumerate(IDS)]
        return Lines([], spark.createDataFrame(columns, f"{LINE}, {PLAIN}"))
    texts = [f"{name},{AT}" if pipeline.source.format == "csv" else json.dumps({"id": name, "at": AT}) for name in IDS]
    file = folder / "lines"
    file.write_text("".join(f"{text}\n" for text in texts))
    size = file.stat().st_size
    return Lines([Range(str(file), 7, 0, size, size)], None)


@dataclass
class Judge:
    """The stage at which a task looks at records."""

    fails: bool

    def __call__(self, parts: Parts) -> Batches:
        for part in parts:
            found = exchange.records_of(part).column("id").to_pylist()
            if self.fails and BAD in found:
                raise ArithmeticError(WHY)
            yield pa.RecordBatch.from_pydict({"id": found})


def at_lines(real: Callable[[Path, Work], Work], path: Path, read: Work) -> Work:
    """Lines are read into blocks by what fails at one that is not refused."""

    def looked_at(lines: Batches) -> Batches:
        for batch in lines:
            if any(BAD in str(row) for row in batch.to_pylist() if row["oo_refused"] is None):
                raise ArithmeticError(WHY)
            yield batch

    stored = real(path, read)
    return lambda lines: stored(looked_at(lines))


def at_rows(real: Callable[..., DataFrame], rows: DataFrame, *given: Any) -> DataFrame:
    """Rows are parsed by what fails at one that is not refused."""
    texts = [F.col(quoted(field.name)) for field in rows.schema if field.dataType == StringType()]
    here = F.concat_ws("|", *texts).contains(BAD) & F.col("oo_refused").isNull()
    checked = F.when(here, F.raise_error(F.lit(WHY)).cast("string")).otherwise(F.col("oo_refused"))
    return real(rows.withColumn("oo_refused", checked), *given)


@pytest.mark.parametrize("stage", ["parsed", "judged"])
@pytest.mark.parametrize("form", FORMS)
def test_a_record_that_a_stage_does_not_survive_is_found_and_refused_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, stage: str
) -> None:
    """By its place, whatever holds it; it is invalid with the reason and how it begins, and the others are kept."""
    schema, source = FORMS[form]
    pipeline: Pipeline = replace(SHOP, schema=schema, source=source, record_id=("id",))
    lines = lines_of(spark, pipeline, tmp_path)
    if stage == "parsed":
        monkeypatch.setattr(block_files, "into", partial(at_lines, block_files.into))
        monkeypatch.setattr(parse, "records", partial(at_rows, parse.records))

    def attempt(chosen: Chosen, folder: Path) -> object:
        reader = plain_records.reader(pipeline, NOW, 1)
        read = exchange.read(spark, replace(lines, chosen=chosen), pipeline, NOW, reader, folder)
        found = exchange.apart(spark, read, Judge(stage == "judged"), StructType().add("id", "string"))
        return found.collect() if found is not None else []

    found = poison._found(exchange.places(spark, lines), {}, attempt)
    assert found is not None
    attempt(Chosen({found: WHY}), tmp_path / "left")
    records = records_of(spark, replace(lines, chosen=Chosen({found: WHY})), pipeline, NOW)

    assert [row.id for row in records if row.oo_reason is None] == [name for name in IDS if name != BAD]
    [refused] = [row for row in records if row.oo_reason is not None]
    assert (refused.id, refused.oo_reason) == (None, WHY)
    assert refused.oo_raw is not None or form in ("columns",)
    assert found == Place(7, found.position)
