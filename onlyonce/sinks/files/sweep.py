"""Entry point: find temporary files of sharded sinks that no attempt needs, and remove the old ones. No Spark.

Retries and kills leave files under temporary names, which are never read. A file is removed if the log says that no
attempt can need it any more (`onlyonce.core.shards.may_go`), and if it is older than the horizon. A running task has
the highest epoch and an open unit, so its files stay, however long it takes. Places that are neither declared nor in
the log are not swept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from onlyonce import job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import FileSink, Pipeline, target
from onlyonce.asked import parse
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.files import Files
from onlyonce.core.runs import Report
from onlyonce.core.shards import may_go, read_temporary
from onlyonce.database.connect import Database
from onlyonce.sinks.files.file_stores import UNREACHABLE, store_of
from onlyonce.sinks.files.file_target import spellings

AT_ONCE = 10_000


def main(argv: list[str]) -> Report:
    """Sweep once; with --dry-run only report what would be removed."""
    asked = parse("sweep", argv)
    database = Database(settings.database_url(), "onlyonce/sweep")
    hours = settings.keep_temporaries_hours() if asked.older_than is None else asked.older_than
    return sweep(database, declarations.load(asked.pipelines), hours, dry_run=asked.dry_run)


def sweep(database: Database, declared: Mapping[str, Pipeline], hours: float, *, dry_run: bool = False) -> Report:
    """List each place's temporary files; report the orphans, and how many of them were removed."""
    orphans, warnings = [], []
    for places in spellings(_places(database, declared)):
        try:
            for orphan in _orphans(database, places, hours, remove=not dry_run):
                orphans.append(orphan)  # before the next one, whose removal may fail
        except UNREACHABLE as error:
            warnings.append(f"{places[0]} can't be looked at: {error}")
    removed = sum(row["outcome"] == "removed" for row in orphans)
    facts = {"orphans": len(orphans), "removed": removed, "kept (hours)": hours}
    title = f"sweep: {removed} of {len(orphans)} orphan(s) removed" if orphans else "sweep: no orphans"
    return Report(title, f"sweep__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, {"orphans": orphans}, warnings)


def _places(database: Database, declared: Mapping[str, Pipeline]) -> set[str]:
    """Return the places of the log and of the declarations: a killed first attempt is in no log."""
    found = Files(database).places()
    for instance, name in Collector(database).instances():
        pipeline = declared.get(name)
        for output in pipeline.outputs if pipeline else ():
            if pipeline and isinstance(output.sink, FileSink):
                found.add(output.sink.place(target(pipeline, output), instance.removeprefix(name)))
    return found


def _orphans(database: Database, places: list[str], hours: float, *, remove: bool) -> Iterator[dict[str, Any]]:
    place = places[0]
    store = store_of(place)
    # Listed before the log is queried: the log has recorded by then which listed files count, or may still record them.
    there = {name: (age, read) for name, age in store.temporaries() if (read := read_temporary(name))}
    names = list(there)
    for start in range(0, len(names), AT_ONCE):
        some = {name: there[name][1] for name in names[start : start + AT_ONCE]}
        known = Files(database).standings(places, some)
        for name, temporary in some.items():
            if not may_go(temporary, known[name]):
                continue
            age = there[name][0]
            old = age >= hours * 3600
            if old and remove:
                store.remove(name)
            outcome = "removed" if old and remove else "old" if old else "young"
            yield {"place": place, "temporary": name, "hours": round(age / 3600, 1), "outcome": outcome}


def cli() -> None:
    """Run `python -m onlyonce.sinks.files.sweep`."""
    logs.configure(job="sweep")
    job_main.run(main)


if __name__ == "__main__":
    cli()
