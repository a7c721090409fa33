"""Commits to Delta that can be repeated, and the check afterwards that the right one is there.
docs/specification/delta-commit.md.

Delta silently skips a write at or below the highest txnVersion of a txnAppId. So a commit that was not acknowledged is
compared with the one that was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tenacity
from deltalake import DeltaTable, PostCommitHookProperties
from pyspark.sql.types import StructType

from onlyonce.model import stored_names
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.storage.location import Location, Url
from onlyonce.storage import log_entries, opening
from onlyonce.storage.appended import Appended
from onlyonce.storage.log_entries import LOG

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
        return log_entries.text(asdict(self))

    def is_told_by(self, note: Mapping[str, Any]) -> bool:
        """Whether a note is that of a commit under this transaction id and version, whatever it holds."""
        return (note.get(stored_names.NOTE_APP_ID), note.get(stored_names.NOTE_VERSION)) == (self.app_id, self.version)


def exists(path: Location) -> bool:
    """Whether there is a Delta table."""
    return log_entries.any_in(path)


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
            note = log_entries.note(entry.get("userMetadata"))
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
