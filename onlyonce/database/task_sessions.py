"""The database sessions of Spark's tasks: few at once in an executor, each under the name of its unit and attempt, none
left idle.

A cluster has hundreds of tasks, and a PostgreSQL has room for some hundred sessions. So the tasks of an executor share
a number of slots. A slot is a lock on a file below the executor's own local folder: the system frees it when its
process ends, however it ends.

Who calls it: `onlyonce.session.worker`. Errors: OSError when the folder can't be written. Not promised: who gets a slot
first; and a bound over all executors, which a pooler has (docs/how-to/cluster.md).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onlyonce.database import connect
from onlyonce.database.connect import Database
from onlyonce.model import stored_names

SLOTS = "onlyonce-sessions"


@contextmanager
def held(database: Database, work: str, folder: Path) -> Iterator[Database]:
    """The database as one task reaches it while this is entered.

    `work` is added to the session's name: the unit and the attempt.
    """
    here = replace(
        database, url=database.pooler or database.url, name=stored_names.task_session(database.name, work), of_task=True
    )
    if not connect.by_transaction(here):
        here = replace(here, name=database.name)  # MySQL finds the sessions of an old driver by this name alone
    with _slot(folder / SLOTS, database.at_once):
        try:
            yield here
        finally:
            connect.end_sessions(here)


@contextmanager
def _slot(folder: Path, count: int) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    first = os.getpid() % count
    numbers = [*range(first, count), *range(first)]
    files = [os.open(folder / str(number), os.O_RDWR | os.O_CREAT, 0o600) for number in numbers]
    try:
        if not any(map(_taken, files)):
            fcntl.flock(files[0], fcntl.LOCK_EX)
        yield
    finally:
        for file in files:
            os.close(file)


def _taken(file: int) -> bool:
    """Whether this process has the lock now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
