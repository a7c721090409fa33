"""Appends to Delta tables: which columns get a dictionary, new data files, and the commit that names them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import tenacity
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from onlyonce.core import locations, stored_names
from onlyonce.core.errors import InvariantBroken, Retryable, Superseded
from onlyonce.core.locations import Location
from onlyonce.failpoints import passing
from onlyonce.tables import arrow_files, opening, statistics, stores
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.commit import Appended, Own

SAMPLE = 4096
"""How many first rows of a file decide about its columns."""


def worth_it(rows: pa.Table) -> list[str]:
    """Return the columns whose values occur at least twice on average in the first rows, so that a dictionary pays
    off.
    """
    return [name for name in rows.column_names if _repeats(rows.column(name).slice(0, SAMPLE))]


def _repeats(column: pa.ChunkedArray) -> bool:
    return not pa.types.is_nested(column.type) and 2 * pc.count_distinct(column, mode="all").as_py() <= len(column)


# Appends to Delta tables in two steps: first the data files, then one entry in the log that names them.
#
# Tasks write the files into a folder of their attempt, which no reader sees. Then the driver names the files in one
# commit by delta-rs, under the transaction id. Flink's Delta connector works the same way. Spark's own writer computes
# the state of the whole table before each commit, to see whether it has the transaction id. This takes three jobs, most
# of a small batch's time. No commit names the files of a killed attempt, so they hold no rows. A gc run removes them
# (`onlyonce.tables.attempt_files`).


BETWEEN = 200
"""How many times a commit is tried while other writers' commits come first.

The files exist already, so a try takes a moment. A try is lost only if another writer has committed. If four writers
commit as fast as they can, about one commit in three hundred loses 20 times in a row (0.75 to the power of 20).
"""


@dataclass(frozen=True)
class DataFile:
    """A new data file, and the value of each partition column as stored in the log (None: null)."""

    at: Location
    partition: Mapping[str, str | None]


Files = Sequence[Location | DataFile]
"""New data files of a table. A plain location gets its partition from the folders around it; only the platform's own
tables have such files.
"""


def append(
    write: Callable[[Location], Files],
    to: Appended,
    commit: tables_commit.Commit,
    *,
    replayed: bool = False,
    form: opening.Form | None = None,
    fenced_of: str | None = None,
) -> int | None:
    """Append the files that `write` puts into the folder that it gets, once; return the table's version as `once` does.

    `write` is not called if an earlier attempt has committed. For `replayed` see `commit.once`. `form`: the form in
    which a user's table was checked (`opening.form`). Raise Retryable if a try of the commit finds another.
    `fenced_of`: the incarnation whose newer drivers may have fenced this commit (`fence`). Raise Superseded if one has.
    """

    def once() -> int | None:
        return _commit(to, commit, sorted(write(to.at / folder(commit)), key=str), form, fenced_of)

    return tables_commit.once(to.at, commit, once, replayed=replayed, table=to)


def fence(to: Own, incarnation: str, epoch: int) -> None:
    """Let no driver of an earlier epoch commit a batch of receive to `events` from now on.

    Commit an empty version, with a transaction that holds the epoch. A commit to a Delta table must be the next version
    after the one that its driver has read. If another commit has become that version, it fails, and the driver reads
    the table again before its next try. So a driver that was stopped just before its commit has two possible ends:

    - It has committed before this version. A caller that reads the table after this call finds its batch.
    - It has not. Then its commit fails, and as it reads the table again it finds this transaction, and ends
      (`_refuse_fenced`).
    """
    by = stored_names.transaction(incarnation, stored_names.FENCED_BY)
    commit = tables_commit.Commit(by, epoch, stored_names.numbered(by, epoch), epoch, "")
    for attempt in tries(to.at):
        with attempt:
            there = to.look().transaction_version(by)
            if there is None or there < epoch:
                _put(to, commit, [])
    passing("receive-after-fence")


def _refuse_fenced(to: Appended, incarnation: str, epoch: int) -> None:
    there = to.transaction_version(stored_names.transaction(incarnation, stored_names.FENCED_BY))
    if there is not None and there > epoch:
        raise Superseded(
            f"{to.at}: a newer driver of {incarnation} (epoch {there}) takes its batch in again",
            data="nothing of this driver's batch is in the table",
            hint="let that driver work; nothing is to be done here",
        )


def append_rows(
    files: Sequence[Sequence[Mapping[str, Any]]],
    at: Location | Appended,
    commit: tables_commit.Commit,
    partition: Mapping[str, str] | None = None,
) -> int:
    """Append a few rows once to one of the platform's own tables; return the version.

    Each sequence of rows becomes one data file, in this order. `at`: the location, or the opened table. No JVM needed.
    """
    values = dict(partition or {})
    to = at if isinstance(at, Appended) else Own(at)

    def write() -> int | None:
        schema = pa.schema(field for field in pa.schema(to.table.schema().to_arrow()) if field.name not in values)
        place = to.at.joinpath(folder(commit), *(f"{name}={value}" for name, value in values.items()))
        names = [place / f"part-{number:05}.parquet" for number in range(len(files))]
        for rows, file in zip(files, names, strict=True):
            arrow_files.write(file, pa.Table.from_pylist(list(rows), schema=schema))
        return _commit(to, commit, names)

    return exactly(to.at, tables_commit.once(to.at, commit, write, table=to))


def exactly(path: Location, version: int | None) -> int:
    """Return the version of a commit to one of the platform's own tables, whose rows are read by it.

    Raise InvariantBroken if its entry is gone.
    """
    if version is None:
        raise InvariantBroken(
            f"{path}: the log has no entry of a commit that was written",
            data="the rows are in the table; nothing was written now",
            hint="the log of this table is the platform's and nothing else may remove its entries: restore "
            "_delta_log from a backup",
        )
    return version


def folder(commit: tables_commit.Commit) -> str:
    """Return the name of a new folder for the files of an attempt."""
    return locations.attempt_folder(commit.app_id, commit.version, uuid4().hex)


def _commit(
    to: Appended,
    commit: tables_commit.Commit,
    files: Files,
    form: opening.Form | None = None,
    fenced_of: str | None = None,
) -> int | None:
    """Name the files in the log. Return the version that has them, or None if the transaction was already in the table.

    `commit.once` has just searched for the transaction, so the first try uses the table as it is. delta-rs may not
    retry by itself. So a commit that it acknowledges is the next version, and needs no second read.
    """
    for attempt in tries(to.at):
        with attempt:
            if attempt.retry_state.attempt_number > 1:
                there = to.look().transaction_version(commit.app_id)
                if there is not None and there >= commit.version:
                    return None  # a lost answer, or another driver's: `once` compares it
            if fenced_of is not None:
                _refuse_fenced(to, fenced_of, commit.epoch)
            if form is not None:
                opening.refuse_changed(to.table, to.at, form)
            return _put(to, commit, files)
    return None


def _put(to: Appended, commit: tables_commit.Commit, files: Files) -> int:
    """Write the next version of the table as it was read. Raise delta-rs's CommitFailedError if there is one."""
    table = to.table
    properties = CommitProperties(
        custom_metadata={"userMetadata": commit.note(), "isBlindAppend": True},
        app_transactions=[Transaction(commit.app_id, commit.version, int(time.time() * 1000))],
        max_commit_retries=0,
    )
    by = table.metadata().partition_columns
    indexed = statistics.columns(table)
    passing("table-before-commit")
    actions = [added(to.at, file, indexed) for file in files]
    new = table.version() + 1
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        by,
        commit_properties=properties,
        post_commithook_properties=tables_commit.afterwards(new),
    )
    to.committed(commit.app_id, commit.version, actions)
    return new


def tries(path: Location) -> Iterator[tenacity.AttemptManager]:
    """Yield the tries of a commit between which others may commit. Each try must read the table again.

    Raise Retryable if others commit before each try.
    """
    try:
        yield from tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(CommitFailedError),
            stop=tenacity.stop_after_attempt(BETWEEN),
            wait=tenacity.wait_random(0, 0.2),
            reraise=True,
        )
    except CommitFailedError as error:
        raise Retryable(
            f"{path}: a commit was tried {BETWEEN} times, and others committed to the table each time ({error})",
            data="nothing of this commit is in the table",
            hint="run the same command again; it happens with a writer that never pauses",
        ) from error
    except DeltaError:
        # Some errors of delta-rs leave out the store's message. A listing raises it again if the store denies access or
        # is unreachable.
        next(stores.of(path).names(path / opening.LOG), None)
        raise


def added(
    path: Location, file: Location | DataFile, indexed: Sequence[statistics.Column], *, data_change: bool = True
) -> AddAction:
    """Return the action by which a commit adds a new data file in an attempt's folder.

    `indexed`: the columns by which readers skip files.
    """
    new = file if isinstance(file, DataFile) else _in_folders(path, file)
    entry, footer = arrow_files.end(new.at)
    found = opening.text(statistics.of(footer, indexed))
    return AddAction(
        str(new.at.relative_to(path)),  # type: ignore[arg-type]
        entry.bytes,
        dict(new.partition),
        int(entry.modified * 1000),
        data_change,
        found,
    )


def _in_folders(path: Location, file: Location) -> DataFile:
    folders = file.relative_to(path).parts[1:-1]  # type: ignore[arg-type]
    return DataFile(file, dict(part.split("=", 1) for part in folders))
