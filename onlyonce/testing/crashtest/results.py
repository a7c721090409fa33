"""What a scratch platform holds in the end, as Arrow tables: `events`, each output, and what the log says of them.

Of an output of files it is the rows of the files that count, each with the final name of its file; of one that is sent
outside the rows that wait in the outbox.

Columns that tell of the run and not of the result (system time, lineage, batch, partition) are left out. All of it is
in memory at once.
"""

from __future__ import annotations

import io

import psycopg2
import pyarrow as pa
from psycopg2 import sql
from pyarrow import compute as pc
from pyarrow import csv

from onlyonce.database.statements import queries
from onlyonce.declare.outputs.sent import Sent
from onlyonce.declare.pipeline import FileSink, Output, Pipeline, Postgres
from onlyonce.model import stored_names
from onlyonce.model.stored_names import CONTROL, OO_KIND, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.storage import opening
from onlyonce.testing.crashtest import content
from onlyonce.testing.crashtest.scratch import ScratchPlatform

FLOATS = {700: pa.float32(), 701: pa.float64()}
"""PostgreSQL's numbers for real and double precision. Everything else is compared as its text, which is exact."""
JUDGED = (OO_KIND, OO_REASON, OO_RAW, OO_UNKNOWN)


def of(platform: ScratchPlatform, pipeline: Pipeline) -> dict[str, pa.Table]:
    """All results by name."""
    found = {"events": _events(platform, pipeline)}
    found |= {output.name: _output(platform, pipeline, output) for output in pipeline.outputs}
    url = platform.environment["ONLYONCE_DATABASE_URL"]
    return found | {f"log: {name}": _copied(url, sql.SQL(text)) for name, text in queries("crashtest").items()}


def conserved(results: dict[str, pa.Table]) -> bool:
    """Whether the log says that all records add up."""
    return bool(pc.all(pc.equal(results["log: fates"]["conserved"], "t"), min_count=0).as_py())


def _events(platform: ScratchPlatform, pipeline: Pipeline) -> pa.Table:
    # What stays of an invalid record is its raw content; control rows are the platform's own.
    columns = [*pipeline.columns(), *JUDGED]
    table = opening.table(platform.data / stored_names.DATA_FOLDER / pipeline.name / stored_names.EVENTS_FOLDER)
    return pa.table(table.to_pyarrow_table(columns=columns, filters=[(OO_KIND, "!=", CONTROL)]))


def _output(platform: ScratchPlatform, pipeline: Pipeline, output: Output) -> pa.Table:
    url = platform.environment["ONLYONCE_DATABASE_URL"]
    if isinstance(output.sink, Postgres):
        url = platform.environment[output.sink.connection or "ONLYONCE_DATABASE_URL"]
        name = sql.Identifier(*output.sink.table.split("."))
        return _copied(url, sql.SQL("SELECT * FROM {}").format(name))
    if isinstance(output.sink, FileSink):
        return content.of_files(
            platform.home / stored_names.RESULT_FILES_FOLDER / pipeline.name / output.name,
            output.sink.format,
            _winners(url, output),
        )
    if isinstance(output.sink, Sent):
        return content.of_payloads(_of_log(url, output, "requests"))
    return pa.table(
        opening.table(platform.data / stored_names.TABLES_FOLDER / pipeline.name / output.name).to_pyarrow_table()
    )


def _winners(url: str, output: Output) -> list[tuple[str, str, int]]:
    """(temporary, final name, rows) of each file that counts."""
    found = _of_log(url, output, "files").to_pylist()
    return [(row["temporary"], row["name"], int(row["rows"])) for row in found]


def _of_log(url: str, output: Output, query: str) -> pa.Table:
    every = _copied(url, sql.SQL(queries("crashtest_outputs")[query]))
    return every.filter(pc.equal(every["output"], output.name))


def _copied(url: str, select: sql.Composable) -> pa.Table:
    session = psycopg2.connect(url.replace("+psycopg2", ""), options="-c timezone=UTC")
    try:
        with session.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT * FROM ({}) AS s LIMIT 0").format(select))
            types = {column.name: FLOATS.get(column.type_code, pa.string()) for column in cursor.description or ()}
            rows = io.BytesIO()
            cursor.copy_expert(sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, HEADER)").format(select), rows)
    finally:
        session.close()
    rows.seek(0)
    return csv.read_csv(
        rows,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    )
