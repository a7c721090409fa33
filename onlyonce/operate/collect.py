"""Entry point: remove ids that are older than the dedup horizon, and other data that was kept long enough.

No Spark. The DAG `onlyonce_collect` and `onlyonce collect` run it.

For each pipeline and bounded run it raises the floor (`onlyonce.model.operate.collecting` decides, without a clock),
drops the buckets below it, merges the small chunks of the others, and makes filters over several buckets. Then it
removes what was kept long enough, archives input if that is asked for, and sweeps temporary files of sharded sinks
(docs/specification/collection.md). It is safe beside a running stream and beside itself, and may be killed at any point
and run again.

Errors: Refused for a pipeline that is not declared, Retryable while the database is away, InvariantBroken for a catalog
with other ids than were written, when all else is done. Not promised: that every bucket is dropped at once. While
somebody reads the catalog for long they stay, with a warning, until the next time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog

from onlyonce import job_main, logs, settings
from onlyonce.asked import parse
from onlyonce.catalog import collector
from onlyonce.catalog.collector import Collector
from onlyonce.catalog.merging import Merging
from onlyonce.catalog.range_filters import RangeFilters
from onlyonce.commitlog.driver_runs import DriverRuns
from onlyonce.commitlog.operate import retention
from onlyonce.commitlog.operate.retention import Retention
from onlyonce.database.connect import Database, transaction
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline, unknown
from onlyonce.failpoints import passing
from onlyonce.lookups import collecting
from onlyonce.model.errors import CommitStateUnknown, InvariantBroken, Retryable
from onlyonce.model.operate import filter_ranges
from onlyonce.model.operate.collecting import BUCKET, NearHorizon, horizon_buckets
from onlyonce.model.report import Report
from onlyonce.operate import archive, staged_rows, sums
from onlyonce.operate.compact import under_way
from onlyonce.sinks.files import sweep
from onlyonce.storage import attempt_files

log = structlog.get_logger()

ATTEMPTS = 5
PAUSE_SECONDS = 1.0
"""Between two attempts at a drop the readers that queued behind the first one have their turn."""


def main(argv: list[str]) -> Report:
    """Collect once, everything or one pipeline; the report says what went."""
    only = parse("collect", argv).pipeline
    database = Database(settings.database_url(), "onlyonce/collect")
    declared = declarations.load()
    if only is not None and only not in declared:
        raise unknown("pipeline", only, sorted(declared))
    known = Collector(database).instances()
    chosen = [(instance, pipeline) for instance, pipeline in known if only in (None, pipeline)]
    warnings = [_undeclared(instance, pipeline) for instance, pipeline in chosen if pipeline not in declared]
    rows, broken = _collected(database, declared, chosen, warnings)
    warnings += [_too_near(row) for row in Collector(database).near_horizon() if row.pipeline in dict(chosen)]
    kept = _retain(database, warnings)
    archived = _archive(database, declared, {pipeline for _, pipeline in chosen}, warnings)
    left = sum(attempt_files.sweep(instance, _file_hours(database, instance), warnings) for instance, _ in chosen)
    swept = sweep.sweep(database, declared, settings.keep_temporaries_hours())
    warnings += swept.warnings
    if broken:
        raise broken[0]
    temporaries = {"orphans of files": swept.facts["orphans"], "orphans removed": swept.facts["removed"]} | {
        "data files of killed drivers removed": left
    }
    return _report(rows, warnings, kept | archived | temporaries, swept.tables["orphans"])


def _collected(
    database: Database, declared: Mapping[str, Pipeline], chosen: list[tuple[str, str]], warnings: list[str]
) -> tuple[list[dict[str, Any]], list[InvariantBroken]]:
    """The rows of the report, and what must not be in a catalog: it ends the run when all the rest is done, for others
    need not wait for a person."""
    rows, broken = [], []
    for instance, pipeline in chosen:
        if pipeline in declared:
            try:
                rows.append(collect_instance(database, instance, declared[pipeline], warnings))
            except InvariantBroken as error:
                log.error("a catalog is not collected", instance=instance, what=error.what)
                broken.append(error)
    return rows, broken


def collect_instance(database: Database, instance: str, pipeline: Pipeline, warnings: list[str]) -> dict[str, Any]:
    """One pipeline or bounded run; gives its row of the report, and adds to the warnings. Called by `main`."""
    horizon = horizon_buckets(pipeline.dedup_horizon)
    before, after = Collector(database).raise_floor(instance, horizon)
    passing("collect-after-floor")
    waiting = Collector(database).below_floor(instance)
    gone, left = _drop_all(database, instance, waiting)
    if left:
        warnings.append(f"{instance}: {len(waiting) - len(gone)} bucket(s) are left for the next time: {left}")
    merged, made = _merge_all(database, instance)
    filters = _range_filters(database, instance)
    return {
        "pipeline": instance, "horizon": str(pipeline.dedup_horizon), "floor": _time(after), "moved": after - before,
        "buckets": len(gone), "chunks": sum(d.chunks for d in gone), "ids": sum(d.ids for d in gone),
        "bytes": sum(d.bytes for d in gone), "merged": merged, "into": made, "range filters": filters,
    }  # fmt: skip


def _drop_all(
    database: Database, instance: str, waiting: list[collector.Bucket]
) -> tuple[list[collector.Dropped], str | None]:
    """What was dropped, and what stopped it: who reads one bucket for long holds the others of the pipeline too."""
    gone: list[collector.Dropped] = []
    for bucket in waiting:
        try:
            dropped = _drop(database, instance, bucket)
        except (Retryable, CommitStateUnknown) as error:
            return gone, error.what
        if dropped:
            gone.append(dropped)
        passing("collect-after-drop")
    return gone, None


def _drop(database: Database, instance: str, bucket: collector.Bucket) -> collector.Dropped | None:
    """One bucket, in a transaction of its own, tried a few times. Raises Retryable when a reader does not end."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with transaction(database) as connection:
                return Collector(connection).drop(instance, bucket)
        except (Retryable, CommitStateUnknown):
            # A drop whose answer was lost is tried again too: what is gone is then found to be gone.
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _merge_all(database: Database, instance: str) -> tuple[int, int]:
    """How many chunks became how many, in all live buckets; the room of what was merged is given back."""
    merged = made = 0
    for crowd in Merging(database).crowded(instance):
        while parts := Merging(database).merge_next(instance, crowd):  # type: ignore[misc]
            passing("merge-after-commit")
            merged, made = merged + parts, made + 1
    for waste in Merging(database).wasteful(instance):
        # Somebody may read the bucket for long: then it is written anew the next time, or goes as it is.
        with suppress(Retryable, CommitStateUnknown), transaction(database) as connection:
            Merging(connection).compact(instance, waste)
        passing("merge-after-compact")
    return merged, made


def _range_filters(database: Database, instance: str) -> int:
    """How many filters over several buckets were made, each in a transaction of its own; those of dropped buckets
    go."""
    RangeFilters(database).remove_below(instance)
    made = ids = 0
    for block in RangeFilters(database).wanted(instance):
        if ids >= filter_ranges.AT_ONCE:
            break
        ids += RangeFilters(database).make(instance, block)  # type: ignore[misc]
        made += 1
    return made


def _file_hours(database: Database, instance: str) -> float:
    """How long data files stay that are not in a table: what is under way may have begun to read it when they were."""
    return max(settings.keep_temporaries_hours(), under_way.hours(database, instance))


def _retain(database: Database, warnings: list[str]) -> dict[str, Any]:
    """Sums, units and staged rows: what is kept long enough, of all pipelines, declared or not.

    The sums come first, while the units are there.
    """
    folded = sums.fold(database)
    sums.note_final(database)
    days, units, delivered = settings.keep_units_days(), 0, 0
    while True:
        batches, removed = Retention(database).remove_units(days)
        passing("retention-after-units")
        units += removed
        if not batches:
            break
    elsewhere, left = retention.remove_elsewhere(database)
    warnings += left
    while rows := Retention(database).remove_delivered(days):
        delivered += rows
    runs = DriverRuns(database).remove(days)
    copies = collecting.collect(database)
    files = staged_rows.remove(Retention(database).settled(settings.keep_staged_days()))
    return {
        "batches folded into sums": folded,
        "units kept (days)": days,
        "units removed": units,
        "units removed elsewhere": elsewhere,
        "delivered rows removed": delivered,
        "old runs removed": runs,
        "staged rows kept (days)": settings.keep_staged_days(),
        "staged files removed": files,
        "copies of lookups removed": copies,
    }


def _archive(
    database: Database, declared: Mapping[str, Pipeline], chosen: set[str], warnings: list[str]
) -> dict[str, Any]:
    folder, files = settings.archive(), 0
    for name in sorted(chosen & declared.keys()) if folder else []:
        assert folder is not None
        moved, stayed = archive.archive(database, declared, declared[name], folder)
        files += moved
        warnings += stayed
    return {"archive": str(folder) if folder else "off", "files archived": files}


def _too_near(row: NearHorizon) -> str:
    return (
        f"{row.pipeline}: {row.near_the_edge} of {row.duplicate} duplicates of the last horizon were "
        "caught in its "
        "oldest tenth. Lengthen dedup_horizon, or the next ones will be taken for new records"
    )


def _report(
    rows: list[dict[str, Any]], warnings: list[str], more: dict[str, Any], orphans: list[dict[str, Any]]
) -> Report:
    names = ("buckets", "chunks", "ids", "bytes", "merged", "into", "range filters")
    facts: dict[str, Any] = {name: sum(row[name] for row in rows) for name in names} | more
    title = f"collect: {facts['buckets']} bucket(s) dropped" if facts["buckets"] else "collect: nothing to drop"
    shown = {"by pipeline": rows} | ({"orphans of files": orphans} if orphans else {})
    return Report(title, f"collect__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown, warnings)


def _undeclared(instance: str, pipeline: str) -> str:
    return f"{instance}: no pipeline {pipeline!r} is declared any more, so its horizon is unknown and its ids stay"


def _time(floor: int) -> datetime | None:
    return datetime.fromtimestamp(floor * BUCKET.total_seconds(), UTC) if floor > 0 else None


def cli() -> None:
    """`python -m onlyonce.operate.collect`."""
    logs.configure(job="collect")
    job_main.run(main)


if __name__ == "__main__":
    cli()
