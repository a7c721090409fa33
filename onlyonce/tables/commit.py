"""Writes the version checksum beside a commit to one of the platform's own tables, as Delta's protocol describes it
(Version Checksum File).

It has the table's schema and protocol, and how many files and bytes it has. Where a version has none, Spark runs a job
over the log to learn the schema: a tenth of a second for each query in each batch. Nothing is decided by this file, and
a version without one is read as before: so nobody waits for it, and a killed driver leaves none.

Who calls it: `appended.Own`, once a commit is acknowledged. Errors: none; what can't be written is told. Only on a
disk: in a store it would be two requests for each commit.
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
"""So many of the last versions have one. Readers ask for the last."""
GOES_ON = ("metadata", "protocol", "numMetadata", "numProtocol")
"""What an append leaves as it was."""
log = structlog.get_logger()


def write_checksum(at: Location, before: DeltaTable, added: Sequence[AddAction]) -> None:
    """That of the version after `before`, whose commit has just added these files to the table at a location, and
    nothing else."""
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
    """By all files of the table."""
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


# A table that one run appends to, batch after batch: what of its log has been read stays read.
#
# To open a table means to read its log since the last checkpoint, and so does a look for a transaction: in a store that
# is a request for each commit, in each batch. Here a look reads what has come since the last one. The commit is on
# condition that the next version is not there, as ever, so a look that is old costs a try and no rows.
#
# A table that was dropped and made again begins its log again, so a look for commits after the last one would find
# none, and a commit under the next version would be in a log that lacks the versions before. So a look at a team's
# table also asks whether the log's first entry is the same. Nothing else drops the platform's own tables, whose batches
# are fenced (`Own`).
#
# Who makes it: `RunContext` and `sources.reading`, for as long as a run; `own_tables`, for one append. Errors: those of
# `opening`.


class Appended:
    """The table at a location, as of the last look."""

    def __init__(self, at: Location) -> None:
        self.at = at
        self._open()

    def _open(self) -> None:
        self._begun = self._first_entry()
        self.table: DeltaTable = opening.table(self.at)
        self._transactions: dict[str, tuple[int, int | None]] = {}

    def look(self) -> Self:
        """Read what was committed since the last look; read another log from its start."""
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
        """The highest version of a transaction id; None for one that is not there."""
        now = self.table.version()
        try:
            found = self._since(app_id, now)
        except FileNotFoundError:  # an entry went from the log since the last look
            found = self.table.transaction_version(app_id)
        self._transactions[app_id] = (now, found)
        return found

    def committed(self, app_id: str, number: int, added: Sequence[AddAction]) -> None:
        """A commit was acknowledged, as the version after the last look: it has the transaction of this number, and
        these files."""
        self._transactions[app_id] = (self.table.version() + 1, number)

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
    """One of the platform's own tables, which Spark's streams read version by version: so each commit leaves a version
    checksum."""

    def _first_entry(self) -> Entry | None:
        """Return nothing: the log of such a table never begins again."""
        return None

    def committed(self, app_id: str, number: int, added: Sequence[AddAction]) -> None:
        """See Appended."""
        super().committed(app_id, number, added)
        write_checksum(self.at, self.table, added)


# Commits to Delta that can be repeated, and the check afterwards that the right one is there.
# docs/specification/delta-commit.md.
#
# Delta silently skips a write at or below the highest txnVersion of a txnAppId. So a commit that was not acknowledged
# is compared with the one that was meant.


RECENT = 20
"""How many commits back the look usually goes; when the commit is older, all of the history is read."""

CLEANED_EVERY = 10
"""Spark's own number of commits from one cleanup of a log to the next."""

KEEP_ALL = {
    "delta.appendOnly": "true",
    # By age nothing goes from the log: a query that stood still goes on at an old version. What nobody can ask for goes
    # with a compaction.
    "delta.logRetentionDuration": "interval 3650 days",
    # Each checkpoint names all files that were removed since. Nobody needs it: what a compaction has replaced is swept
    # by our own rule.
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
"""The properties of the platform's own tables, `files` and `events`."""

SKIPPING = "delta.dataSkippingStatsColumns"
"""The property of a table that names the columns by which files are skipped."""

STAGED = "_staged_commits"
"""A folder that Delta 4.4 makes in the log's, before the first commit."""
MADE_UNTIL, MADE_WAIT = tenacity.stop_after_delay(30), tenacity.wait_random(0.1, 1)
"""Delta refuses a folder in which another driver has just begun a table; that one has it done in a moment."""


@dataclass(frozen=True)
class Commit:
    """One Delta commit: its transaction id and version, and the note that tells what it holds."""

    app_id: str
    version: int
    unit: str
    epoch: int
    content: str

    def note(self) -> str:
        """The commit's userMetadata."""
        return opening.text(asdict(self))

    def is_told_by(self, note: Mapping[str, Any]) -> bool:
        """Whether a note is that of a commit under this transaction id and version, whatever it holds."""
        return (note.get(stored_names.NOTE_APP_ID), note.get(stored_names.NOTE_VERSION)) == (self.app_id, self.version)


def exists(path: Location) -> bool:
    """Whether there is a Delta table."""
    return opening.any_in(path)


def make(
    path: Location, frame_schema: StructType, session: Any, partition_by: list[str], properties: dict[str, str]
) -> None:
    """Make an empty table if there is none; drivers at once make one, and what a killed one has left is no table.

    Raises what Delta says of a folder that holds something else.
    """

    def create() -> None:
        from delta.tables import DeltaTable as SparkTable

        builder = SparkTable.createIfNotExists(session).location(str(path)).addColumns(frame_schema)
        for key, value in properties.items():
            builder = builder.property(key, value)
        try:
            (builder.partitionedBy(*partition_by) if partition_by else builder).execute()
        except Exception:
            # One of the drivers makes the table, the others are told of a conflict.
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
        # The log's folder comes before its first commit: if there is none after all this time, its maker was killed.
        if not _only_begun(path):
            raise
        _clear(path / LOG)
        create()


def _clear(log: Path) -> None:
    # A folder goes only when it is empty: should its maker live after all and commit just now, its commit stays.
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

    The transaction in the table's snapshot shows that the commit was written, and the unit in our log, which is
    committed and compared before, shows what it holds. The history is a third piece of evidence: the table's owner may
    clean it. If it has the commit, the commit is compared too.

    write      looks for the transaction again at each try of its own; gives the version of its commit where that was
               acknowledged, and then nobody has to look: it is there on condition that no other was
    replayed   an earlier attempt may have written it: then the history is asked too, since it outlives a transaction
               where `delta.setTransactionRetentionDuration` is set
    table      the table, where the caller has just opened it

    Of two drivers that commit the same transaction one is told that it lost, and it may be the live one: the look
    decides. Raises InvariantBroken when something else is there under this transaction, or a later one.
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
    """The highest version of a transaction id in a table; None without table or transaction. No JVM needed."""
    return opening.table(path).transaction_version(app_id) if exists(path) else None


def find(path: Location, commit: Commit) -> tuple[int, dict[str, Any]] | None:
    """(table version, note) of the commit with this transaction id and version."""
    table = opening.table(path)
    for limit in (RECENT, None):
        for entry in table.history(limit):
            note = opening.note(entry.get("userMetadata"))
            if commit.is_told_by(note):
                return int(entry["version"]), note
    return None


def afterwards(version: int) -> PostCommitHookProperties:
    """What delta-rs does once a version is committed: a checkpoint where one is due, and at every tenth it looks for
    entries of the log that may go by the table's own rule.

    That look lists the log, so it is not for each commit."""
    return PostCommitHookProperties(cleanup_expired_logs=None if version % CLEANED_EVERY == 0 else False)


def latest(path: Location) -> int:
    """The table's version now; -1 without a table."""
    return opening.table(path).version() if exists(path) else -1
