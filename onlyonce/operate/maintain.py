"""Entry point: compact what is closed, in the platform's own tables and in the Delta tables of outputs, and remove what
no reader needs any more, and records and log that are older than a pipeline keeps.

No Spark.

Who calls it: the DAG `onlyonce_maintain` and `onlyonce maintain`. Errors: Retryable while the database is away. Not
promised: that all is done now; what another writer holds is left for the next time, with a warning.
"""

from __future__ import annotations

from datetime import UTC, datetime

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
from onlyonce.operate.compact.compaction import Compacted
from onlyonce.operate.compact.log import Cut
from onlyonce.operate.compact.retention import Retained
from onlyonce.sinks import maintain
from onlyonce.sinks.maintain import Maintained


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
    own: list[Compacted] = []
    outputs: list[tuple[str, str, Maintained]] = []
    removed: list[Retained] = []
    cut: list[Cut] = []
    for name, pipeline in chosen.items():
        removed += _removed(database, pipeline, warnings, dry_run=asked.dry_run)
        cut += [one for one in [log_cut.cut(database, pipeline, dry_run=asked.dry_run)] if one]
        own += _own(database, name, warnings, dry_run=asked.dry_run)
        for output in pipeline.outputs:
            found = maintain.maintain_output(database, pipeline, output, dry_run=asked.dry_run)
            if isinstance(found, str):
                warnings.append(f"{name}/{output.name}: {found}")
            elif found:
                outputs.append((name, output.name, found))
    everything: list[Compacted | Maintained] = [*own, *(one for _, _, one in outputs)]
    facts = {
        "files before": sum(one.files_before for one in everything),
        "files after": sum(one.files_after for one in everything),
        "removed": sum(one.removed for _, _, one in outputs),
        "log files removed": sum(one.log_files for one in own),
        "old records removed": sum(one.removed for one in removed),
        "batches cut from the log": sum(one.batches for one in cut),
    }
    word = "would be maintained" if asked.dry_run else "maintained"
    what = f"maintain: {len(own) + len(outputs)} table(s) {word}"
    tables = (
        {
            "own tables": [one.row() for one in own],
            "tables": [{"pipeline": name, "output": output} | one.row() for name, output, one in outputs],
        }
        | ({"old records": [one.row() for one in removed]} if removed else {})
        | ({"log": [one.row() for one in cut]} if cut else {})
    )
    return Report(what, f"maintain__{started:%Y-%m-%dT%H:%M:%S}", facts, tables, warnings)


def _own(database: Database, name: str, warnings: list[str], *, dry_run: bool) -> list[Compacted]:
    try:
        return compaction.compact(database, name, dry_run=dry_run)
    except (DeltaError, OSError, pa.ArrowException) as error:
        warnings.append(f"{name}: its own tables are left for the next time: {str(error).splitlines()[0]}")
        return []


def _removed(database: Database, pipeline: Pipeline, warnings: list[str], *, dry_run: bool) -> list[Retained]:
    try:
        found = retention.retain(database, pipeline, dry_run=dry_run)
    except (DeltaError, OSError, pa.ArrowException) as error:
        warnings.append(f"{pipeline.name}: old records are left for the next time: {str(error).splitlines()[0]}")
        return []
    return [found] if found else []


def cli() -> None:
    """`python -m onlyonce.operate.maintain`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
