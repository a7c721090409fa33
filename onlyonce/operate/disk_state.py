"""What `onlyonce doctor` reads from the disk: checkpoints, Delta's transactions, leftovers, jars. Without a JVM.

Who calls it: `onlyonce.operate.doctor`. Errors: none; a table that can't be read is reported. It changes nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from uuid import UUID

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.declare.pipeline import Delta, Iceberg, Pipeline, target
from onlyonce.declare.sources import inputs
from onlyonce.model import stored_names
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.operate.finding import Finding, other_version, shared_account, wider_permissions
from onlyonce.model.operate.stuck import LiveQuery
from onlyonce.model.storage.location import Location
from onlyonce.operate import staged_rows
from onlyonce.settings import home_folders
from onlyonce.spark.options import JARS
from onlyonce.storage import checkpoint, log_entries, opening, stores

STALE_SECONDS = 3600
"""A hidden file that nobody has touched for so long was left by a process that is dead."""
LEFT_BY_SPARK = re.compile(r"\.+.*\.tmp(\.crc)?|\.metadata\.(?!crc$).*")
LEFT_BY_RELEASE = re.compile(r"\.released-.*\.jsonl\.[0-9a-f]{32}")
LEFT_BY_LANDING = re.compile(r"\.pubsub-.*\.jsonl")
LEFT_BY_ARCHIVE = re.compile(r"\..*\.part")
LEFT_AT_THE_PREFIX = re.compile(r"onlyonce\.json\.[0-9a-f]{32}|crashtest-[0-9a-f]{8}")
SHARED = "nobody"
"""The account that runs the embedded server if root has no other (`local.database.accounts`)."""
DELTA_JAR = re.compile(r"delta-spark_([\d.]+)_[\d.]+-(.+)\.jar")


def checkpoints(queries: Sequence[LiveQuery]) -> dict[str, Refused]:
    """What is wrong with the checkpoints of lineages that have run and have no driver at work."""
    found = {}
    for query in queries:
        if query.begun is None or query.at_work:
            continue
        lineage = query.lineage
        lives = settings.data_location(query.instance) / stored_names.CHECKPOINTS_FOLDER
        folder = lives / query.query / str(query.life)
        try:
            checkpoint.is_its_own(folder, lineage, query.checkpoint_id, query.begun)
            checkpoint.compare(folder, lineage, query.committed)
        except Refused as error:
            found[lineage] = error
    return found


class Tables:
    """The Delta tables of the platform, as far as they can be read; `unreadable` has the others, each with the
    reason."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}

    def landed(
        self, platform: UUID | None, queries: Sequence[LiveQuery], declared: Mapping[str, Pipeline]
    ) -> dict[tuple[str, str], int]:
        """(lineage, table) → the highest batch of the lineage that is in the table, by its transactions."""
        found = {}
        for query in queries:
            for path, app_id in _written_by(platform, query, declared):
                table = self._open(path)
                there = table.transaction_version(app_id) if table else None
                if there is not None:
                    found[query.lineage, str(path)] = there
            for place, output in _in_catalogs(query, declared):
                there = self._in_catalog(place, stored_names.writer(platform, query.lineage), output)
                if there is not None:
                    found[query.lineage, place.text] = there
        return found

    def events(self, instances: list[str]) -> dict[str, int]:
        """The version of `events` of each instance that has it."""
        opened = {
            instance: self._open(settings.data_location(instance) / stored_names.EVENTS_FOLDER)
            for instance in instances
        }
        return {instance: table.version() for instance, table in opened.items() if table}

    def _in_catalog(self, place: Place, writer: str, output: str) -> int | None:
        from onlyonce.sinks.iceberg import commits  # with it comes pyiceberg, an extra

        try:
            return commits.landed(place, writer, output)
        except OnlyonceError as error:
            self.unreadable[place.text] = error.what
            return None

    def _open(self, path: Location) -> DeltaTable | None:
        if not log_entries.any_in(path) or str(path) in self.unreadable:
            return None
        try:
            return opening.table(path)
        except (DeltaError, OnlyonceError) as error:  # ours for a table with a feature that nothing here reads
            self.unreadable[str(path)] = (str(error).splitlines() or [type(error).__name__])[0]
            return None


def _written_by(
    platform: UUID | None, query: LiveQuery, declared: Mapping[str, Pipeline]
) -> Iterator[tuple[Location, str]]:
    """(table, transaction id) of what a query writes to Delta."""
    data, lineage, pipeline = (
        settings.data_location(query.instance),
        query.lineage,
        declared.get(query.pipeline),
    )
    if query.query == "receive":
        yield data / stored_names.EVENTS_FOLDER, stored_names.transaction(lineage, stored_names.EVENTS_BY)
    elif pipeline and query.query in [root.name for root in pipeline.roots()]:
        root = pipeline.output(query.query)
        suffix = query.instance.removeprefix(pipeline.name)
        for output in (root, *pipeline.made_from(root)):
            for path in staged_rows.tables(query.instance, output.name):
                yield path, stored_names.transaction(lineage, stored_names.STAGED_BY)
            if isinstance(output.sink, Delta):
                place = target(pipeline, output).split(":", 1)[1] + suffix
                yield settings.table_location(place), stored_names.result_transaction(platform, lineage, output.name)


def _in_catalogs(query: LiveQuery, declared: Mapping[str, Pipeline]) -> Iterator[tuple[Place, str]]:
    """(table, output) of what a query writes to Iceberg catalogs."""
    pipeline = declared.get(query.pipeline)
    if pipeline and query.query in [root.name for root in pipeline.roots()]:
        root = pipeline.output(query.query)
        for output in (root, *pipeline.made_from(root)):
            if isinstance(output.sink, Iceberg):
                yield Place(target(pipeline, output)).of_run(query.instance.removeprefix(pipeline.name)), output.name


def forgotten(instances: list[str], queries: Sequence[LiveQuery]) -> dict[str, str]:
    """Folders that the log should know of and does not, each with the reason: of an instance, or of a later life."""
    folder = settings.data_root() / stored_names.DATA_FOLDER
    store = stores.of(folder)
    found = {
        str(folder / name): "it holds `events`, but the log has no pipeline of that name"
        for name in sorted(store.names(folder))
        if name not in instances
        and not name.startswith(stored_names.DROPPED_PREFIX)
        and log_entries.any_in(folder / name / stored_names.EVENTS_FOLDER)
    }
    for query in queries:
        lives = settings.data_location(query.instance) / stored_names.CHECKPOINTS_FOLDER / query.query
        for name in store.names(lives):
            if name.isdigit() and int(name) > query.life:
                found[str(lives / name)] = (
                    f"it is the checkpoint of a life that the log does not know; its last is {query.lineage}"
                )
    return found


def temporaries(instance: str, pipeline: Pipeline | None) -> list[str]:
    """Hidden files that killed processes left half written, of our own names only."""
    found = _left_by_spark(settings.data_location(instance))
    if pipeline and instance == pipeline.name:
        for inbox in inputs.folders(pipeline):
            for left in (LEFT_BY_RELEASE, LEFT_BY_LANDING):
                found += _left_in(inbox, left, deep=False) if isinstance(inbox, Path) else []
        if isinstance(archive := settings.archive(), Path):  # in a store nothing is half there
            found += _left_in(archive / pipeline.name, LEFT_BY_ARCHIVE)
    return sorted(found)


def left_at_the_prefix() -> dict[str, list[str]]:
    """Where data is in a store: its place, and the objects there of a first start and of crash tests that were killed.

    On a disk these have folders of their own.
    """
    root = settings.data_root()
    if isinstance(root, Path):
        return {}
    store, found = stores.of(root), list[str]()
    for name in store.names(root):
        if LEFT_AT_THE_PREFIX.fullmatch(name):
            there = [*store.entries(root / name), *filter(None, [store.look(root / name)])]
            if all(time.time() - one.modified > STALE_SECONDS for one in there):
                found += [str(one.at) for one in there]
    return {str(root): sorted(found)}


def _left_by_spark(data: Location) -> list[str]:
    if isinstance(data, Path):
        return _left_in(data, LEFT_BY_SPARK)
    there = stores.of(data).entries(
        data / stored_names.CHECKPOINTS_FOLDER
    )  # the rest are many, and no rename has given them their names
    return [
        str(one.at)
        for one in there
        if LEFT_BY_SPARK.fullmatch(one.at.name) and time.time() - one.modified > STALE_SECONDS
    ]


def _left_in(folder: Path, names: re.Pattern[str], *, deep: bool = True) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder):
        # The rows of `events` and staged rows: many files, and none of ours is hidden there.
        folders[:] = [name for name in folders if deep and not name.startswith("oo_")]
        for name in files:
            path = Path(place, name)
            if names.fullmatch(name) and _is_old(path):
                found.append(str(path))
    return found


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > STALE_SECONDS
    except OSError:
        return False


def permissions() -> list[Finding]:
    """Return the folders of the embedded home that other users may enter, and the server's if its account is not its
    own."""
    if not settings.embedded():
        return []
    found = [
        wider_permissions(str(path), found, allowed) for path, found, allowed in home_folders.wider(settings.home())
    ]
    server = settings.home() / "postgres"
    if (server / "data").exists() and (account := owner_of(server / "data")) == SHARED:
        found.append(shared_account(str(server), account))
    return found


def owner_of(path: Path) -> str | None:
    """Return the account that owns a path; None if it has no name."""
    try:
        return path.owner()
    except KeyError:
        return None


def versions() -> list[Finding]:
    """What is installed and does not fit: the two packages of Spark, and Delta's jar."""
    spark, client, delta = (metadata.version(name) for name in ("pyspark", "pyspark-client", "delta-spark"))
    found = []
    if spark != client:
        what = f"pyspark is {spark} and pyspark-client {client}; both install the same module"
        found.append(other_version("pyspark-client", what))
    jars = [match for path in sorted(JARS.glob("delta-spark_*.jar")) if (match := DELTA_JAR.fullmatch(path.name))]
    if not jars:
        found.append(other_version(str(JARS), f"the jars of Delta are not in {JARS}"))
    for jar in jars:
        if jar[2] != delta or not spark.startswith(f"{jar[1]}."):
            what = f"the jar {jar[0]} is there, but delta-spark is {delta} and pyspark {spark}"
            found.append(other_version(str(JARS / jar[0]), what))
    if len(jars) > 1:
        found.append(other_version(str(JARS), f"{len(jars)} versions of Delta's jar are in {JARS}"))
    return found
