"""Commits to Delta tables: version checksums, tables that a run appends to, and commits that can be repeated.

The version checksum is written next to a commit to one of the platform's own tables, as Delta's protocol describes it
(Version Checksum File). It has the table's schema and protocol, and the number and bytes of its files. For a version
without a checksum file, Spark runs a job over the log to learn the schema: a tenth of a second for each query in each
batch. No decision depends on this file, and a version without one is read as before. So no commit waits for it, and a
killed driver leaves none.

It is written only on a disk: in a store it would be two requests for each commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import structlog
import tenacity
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.locations import Location, Url
from onlyonce.tables import opening, stores
from onlyonce.tables.opening import LOG
from onlyonce.tables.stores import Entry

KEPT = 20
"""The number of last versions that keep a checksum. Readers ask for the last one."""
GOES_ON = ("metadata", "protocol", "numMetadata", "numProtocol")
"""The fields that an append does not change."""
log = structlog.get_logger()


def write_checksum(at: Location, before: DeltaTable, added: Sequence[AddAction]) -> None:
    """Write the checksum of the version after `before`, whose commit has just added these files and nothing else."""
    if not isinstance(at, Path):
        return
    version = before.version() + 1
    try:
        new = _after(_told(at, version - 1) or _counted(before), added)
        stores.of(at).put(_place(at, version), opening.text(new).encode())
        for old in range(max(version - 2 * KEPT, 0), version - KEPT):
            stores.of(at).delete(_place(at, old))
    except OSError as error:
        log.warning(
            "a version checksum could not be written; Spark reads the log instead", table=str(at), problem=str(error)
        )


def _place(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020}.crc"


def _told(table: Path, version: int) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(stores.of(table).read(_place(table, version)))
    except (FileNotFoundError, ValueError):
        return None
    return found if {*GOES_ON, "numFiles", "tableSizeBytes"} <= found.keys() else None


def _after(there: dict[str, Any], added: Sequence[AddAction]) -> dict[str, Any]:
    size = there["tableSizeBytes"] + sum(file.size for file in added)
    return {name: there[name] for name in GOES_ON} | {
        "numFiles": there["numFiles"] + len(added),
        "tableSizeBytes": size,
    }


def _counted(table: DeltaTable) -> dict[str, Any]:
    """Return the checksum's fields, counted over all files of the table."""
    files = table.get_add_actions()
    told, protocol = table.metadata(), table.protocol()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    metadata = {
        "id": str(told.id),
        "name": told.name,
        "description": told.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": told.partition_columns,
        "configuration": told.configuration,
        "createdTime": told.created_time,
    }
    numbers = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    return {
        "numFiles": files.num_rows,
        "tableSizeBytes": sum(files["size_bytes"].to_pylist()),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {name: value for name, value in metadata.items() if value is not None},
        "protocol": numbers | {name: list(value) for name, value in features.items() if value},
    }


# A table that one run appends to, batch after batch: what was read of its log is kept.
#
# Opening a table reads its log since the last checkpoint, and so does a search for a transaction. In a store that is a
# request for each commit, in each batch. Here only new entries are read. The commit is conditional on the next version
# not existing, so an outdated view costs a retry and no rows.
#
# A table that was dropped and made again begins its log again. A search for commits after the last one would find none.
# A commit under the next version would be in a log that lacks the earlier versions. So for a team's table each poll
# also checks that the log's first entry is the same. Nothing else drops the platform's own tables, whose batches are
# fenced (`Own`).


class Appended:
    """The table at a location, as of the last read."""

    def __init__(self, at: Location) -> None:
        self.at = at
        self._open()

    def _open(self) -> None:
        self._begun = self._first_entry()
        self.table: DeltaTable = opening.table(self.at)
        self._transactions: dict[str, tuple[int, int | None]] = {}

    def look(self) -> Self:
        """Read what was committed since the last read. If the log is another one, read it from its start."""
        if self._first_entry() != self._begun:  # made again, or the entry is older than the table keeps
            if not opening.any_in(self.at):
                raise Refused(
                    f"{self.at} is gone since the run began",
                    data="nothing was written: a new table would hold the newest rows only, while the log says "
                    "that all are there",
                    hint="put the table back; the next start says how to make it again",
                )
            self._open()
        self.table.update_incremental()
        return self

    def _first_entry(self) -> Entry | None:
        return stores.of(self.at).look(self.at / opening.LOG / f"{0:020}.json")

    def transaction_version(self, app_id: str) -> int | None:
        """Return the highest version of a transaction id; None if there is none."""
        now = self.table.version()
        try:
            found = self._since(app_id, now)
        except FileNotFoundError:  # an entry was removed from the log since the last read
            found = self.table.transaction_version(app_id)
        self._transactions[app_id] = (now, found)
        return found

    def committed(self, app_id: str, number: int, added: Sequence[AddAction]) -> None:
        """Note an acknowledged commit as the version after the last read, with the transaction of this number and these
        files.
        """
        before = self.table.version()
        # It has no other transaction, so what was known of others holds.
        self._transactions = {
            name: (before + 1 if seen == before else seen, found) for name, (seen, found) in self._transactions.items()
        }
        self._transactions[app_id] = (before + 1, number)

    def _since(self, app_id: str, now: int) -> int | None:
        if app_id not in self._transactions:
            return self.table.transaction_version(app_id)
        seen, found = self._transactions[app_id]
        told = [
            action.get("txn", {})
            for version in range(seen + 1, now + 1)
            for action in opening.actions(self.at, version)
        ]
        since = [one["version"] for one in told if one.get("appId") == app_id]
        return max(since if found is None else [*since, found], default=None)


class Own(Appended):
    """A table of the platform's own. Spark's streams read it version by version, so each commit writes a version
    checksum.
    """

    def _first_entry(self) -> Entry | None:
        """Return None: the log of such a table never begins again."""
        return None

    def committed(self, app_id: str, number: int, added: Sequence[AddAction]) -> None:
        """See Appended."""
        super().committed(app_id, number, added)
        write_checksum(self.at, self.table, added)


# Commits to Delta that can be repeated, and the check afterwards that the right one is in the table.
# docs/specification/delta-commit.md.
#
# Delta silently skips a write at or below the highest txnVersion of a txnAppId. So a commit that was not acknowledged
# is compared with the intended one.


RECENT = 20
"""How many commits back the search usually reads; if the commit is older, the whole history is read."""

CLEANED_EVERY = 10
"""Spark's own number of commits from one cleanup of a log to the next."""

KEEP_ALL = {
    "delta.appendOnly": "true",
    # No entry is removed by age: a query that was stopped continues at an old version. A compaction removes what can't
    # be needed again.
    "delta.logRetentionDuration": "interval 3650 days",
    # Each checkpoint names all files that were removed since. They are not needed: our own rule sweeps what a
    # compaction has replaced.
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
"""The properties of the platform's own tables, `files` and `events`."""

SKIPPING = "delta.dataSkippingStatsColumns"
"""The property of a table that names the columns by which files are skipped."""

STAGED = "_staged_commits"
"""A folder that Delta 4.4 makes in the log's, before the first commit."""
MADE_UNTIL, MADE_WAIT = tenacity.stop_after_delay(30), tenacity.wait_random(0.1, 1)
"""Delta refuses a folder in which another driver has just begun a table; that driver finishes it in a moment."""


@dataclass(frozen=True)
class Commit:
    """One Delta commit: its transaction id and version, and the note about its content."""

    app_id: str
    version: int
    unit: str
    epoch: int
    content: str

    def note(self) -> str:
        """Return the commit's userMetadata."""
        return opening.text(asdict(self))

    def is_told_by(self, note: Mapping[str, Any]) -> bool:
        """Return whether a note belongs to a commit under this transaction id and version, whatever its content."""
        return (note.get(stored_names.NOTE_APP_ID), note.get(stored_names.NOTE_VERSION)) == (self.app_id, self.version)


def exists(path: Location) -> bool:
    """Return whether there is a Delta table."""
    return opening.any_in(path)


def make(
    path: Location, frame_schema: StructType, session: Any, partition_by: list[str], properties: dict[str, str]
) -> None:
    """Create an empty table if none exists. If several drivers try at once, one succeeds and the others use its table.

    What a killed driver has left behind is not a table. Raise Delta's error for a folder that holds something else.
    """

    def create() -> None:
        from delta.tables import DeltaTable as SparkTable

        builder = SparkTable.createIfNotExists(session).location(str(path)).addColumns(frame_schema)
        for key, value in properties.items():
            builder = builder.property(key, value)
        try:
            (builder.partitionedBy(*partition_by) if partition_by else builder).execute()
        except Exception:
            # One of the drivers makes the table; the others get a conflict.
            if not exists(path):
                raise

    if exists(path):
        return
    if isinstance(path, Url):
        opening.make(path, frame_schema.json(), partition_by, properties)
        return
    made_by_another = tenacity.retry_if_exception(lambda _: exists(path) or _only_begun(path))
    try:
        for attempt in tenacity.Retrying(retry=made_by_another, stop=MADE_UNTIL, wait=MADE_WAIT, reraise=True):
            with attempt:
                create()
    except Exception:
        # The log's folder comes before its first commit. If there is no commit after all this time, its maker was
        # killed.
        if not _only_begun(path):
            raise
        _clear(path / LOG)
        create()


def _clear(log: Path) -> None:
    # Only an empty folder is removed: if its maker lives after all and commits just now, its commit stays.
    with suppress(OSError):
        for entry in log.glob(".*"):
            entry.unlink(missing_ok=True)
        if (log / STAGED).exists():
            (log / STAGED).rmdir()
        log.rmdir()


def _only_begun(path: Path) -> bool:
    inside = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    return inside == [LOG] and all(
        entry.name.startswith(".") or entry.name == STAGED for entry in (path / LOG).iterdir()
    )


def once(
    path: Location,
    commit: Commit,
    write: Callable[[], int | None],
    *,
    replayed: bool = False,
    table: DeltaTable | Appended | None = None,
) -> int | None:
    """Write unless the table has the transaction.

    Return the commit's version; None if its entry is no longer in the log.

    The transaction in the table's snapshot shows that the commit was written. The unit in our log, which is committed
    and compared before, shows its content. The history is a third piece of evidence: the table's owner may clean it. If
    it has the commit, the commit is compared too.

    write      searches for the transaction again at each of its own tries; returns the version of its commit if that
               was acknowledged. Then no further check is needed: the commit is conditional on that version being new
    replayed   whether an earlier attempt may have written it. Then the history is read too: it outlives a transaction
               if `delta.setTransactionRetentionDuration` is set
    table      the table, if the caller has just opened it

    If two drivers commit the same transaction, the loser may be the live driver, so the commit is read back and
    compared. Raise InvariantBroken if the table's commit of this transaction has different content, or if the table
    already has a later transaction.
    """
    known = table.transaction_version(commit.app_id) if table else version(path, commit.app_id)
    if (
        (known is None or known < commit.version)
        and not (replayed and find(path, commit))
        and (new := write()) is not None
    ):
        return new
    there = find(path, commit)
    if there and (there[1].get("content"), there[1].get("unit")) == (commit.content, commit.unit):
        return there[0]
    now = version(path, commit.app_id)
    if there is None and now == commit.version:
        return None
    raise InvariantBroken(
        f"{path}: transaction {commit.app_id} version {commit.version} should hold {commit.unit} (content "
        f"{commit.content}), but the table has "
        + (
            f"{there[1]} at version {there[0]}"
            if there
            else f"version {now} of this transaction and no commit of {commit.version} in its history"
        ),
        data="nothing was written now; the rows of this unit are not in the table as meant"
        if there
        else "nothing was written now; whether the table has the rows of this unit is unknown",
        hint="was the table, the log or the checkpoint restored from another moment? See onlyonce.commits for the unit",
    )


def version(path: Location, app_id: str) -> int | None:
    """Return the highest version of a transaction id in a table; None without table or transaction. No JVM needed."""
    return opening.table(path).transaction_version(app_id) if exists(path) else None


def find(path: Location, commit: Commit) -> tuple[int, dict[str, Any]] | None:
    """Return (table version, note) of the commit with this transaction id and version, or None."""
    table = opening.table(path)
    for limit in (RECENT, None):
        for entry in table.history(limit):
            note = opening.note(entry.get("userMetadata"))
            if commit.is_told_by(note):
                return int(entry["version"]), note
    return None


def afterwards(version: int) -> PostCommitHookProperties:
    """Return what delta-rs does after a commit: a checkpoint if one is due.

    At every tenth version it also removes expired entries of the log by the table's own rule. That lists the log, so it
    is not done at each commit.
    """
    return PostCommitHookProperties(cleanup_expired_logs=None if version % CLEANED_EVERY == 0 else False)


def latest(path: Location) -> int:
    """Return the table's current version; -1 without a table."""
    return opening.table(path).version() if exists(path) else -1
