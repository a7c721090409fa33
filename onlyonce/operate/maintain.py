"""Entry point: compact what is closed, in the platform's own tables and in the Delta tables of outputs, and remove what
no reader needs any more, and records and log that are older than a pipeline keeps.

No Spark.

Who calls it: the DAG `onlyonce_maintain` and `onlyonce maintain`. Errors: Retryable while the database is away. Not
promised: that all is done now; what another writer holds is left for the next time, with a warning.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from onlyonce import job_main, logs, settings
from onlyonce.asked import parse
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline, unknown
from onlyonce.model.report import Report
from onlyonce.operate.compact import compaction, retention
from onlyonce.operate.compact import log as log_cut
from onlyonce.sinks import maintain

Row = dict[str, Any]


def main(argv: list[str]) -> Report:
    """Maintain all tables once, or those of one pipeline; with --dry-run only say what there is."""
    asked = parse("maintain", argv)
    logs.configure(job="maintain")
    database = Database(settings.database_url(), "onlyonce/maintain")
    migrate(database.url)
    declared = declarations.load(asked.pipelines)
    if asked.pipeline is not None and asked.pipeline not in declared:
        raise unknown("pipeline", asked.pipeline, sorted(declared))
    chosen = {name: pipeline for name, pipeline in sorted(declared.items()) if asked.pipeline in (None, name)}
    started = datetime.now(UTC)
    warnings: list[str] = []
    own: list[Row] = []
    outputs: list[Row] = []
    removed: list[Row] = []
    cut: list[Row] = []
    for name, pipeline in chosen.items():
        removed += _removed(database, pipeline, warnings, dry_run=asked.dry_run)
        cut += [row for row in [log_cut.cut(database, pipeline, dry_run=asked.dry_run)] if row]
        own += _own(database, name, warnings, dry_run=asked.dry_run)
        for output in pipeline.outputs:
            found = maintain.maintain_output(database, pipeline, output, dry_run=asked.dry_run)
            if isinstance(found, str):
                warnings.append(f"{name}/{output.name}: {found}")
            elif found:
                outputs.append({"pipeline": name, "output": output.name} | found)
    facts = {part: sum(row[part] for row in own + outputs) for part in ("files before", "files after")}
    facts |= {
        "removed": sum(row["removed"] for row in outputs),
        "log files removed": sum(row["log files"] for row in own),
        "old records removed": sum(row["removed"] for row in removed),
        "batches cut from the log": sum(row["batches"] for row in cut),
    }
    word = "would be maintained" if asked.dry_run else "maintained"
    what = f"maintain: {len(own) + len(outputs)} table(s) {word}"
    tables = (
        {"own tables": own, "tables": outputs}
        | ({"old records": removed} if removed else {})
        | ({"log": cut} if cut else {})
    )
    return Report(what, f"maintain__{started:%Y-%m-%dT%H:%M:%S}", facts, tables, warnings)


def _own(database: Database, name: str, warnings: list[str], *, dry_run: bool) -> list[Row]:
    try:
        return compaction.compact(database, name, dry_run=dry_run)
    except (DeltaError, OSError, pa.ArrowException) as error:
        warnings.append(f"{name}: its own tables are left for the next time: {str(error).splitlines()[0]}")
        return []


def _removed(database: Database, pipeline: Pipeline, warnings: list[str], *, dry_run: bool) -> list[Row]:
    try:
        row = retention.retain(database, pipeline, dry_run=dry_run)
    except (DeltaError, OSError, pa.ArrowException) as error:
        warnings.append(f"{pipeline.name}: old records are left for the next time: {str(error).splitlines()[0]}")
        return []
    return [row] if row else []


def cli() -> None:
    """`python -m onlyonce.operate.maintain`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
