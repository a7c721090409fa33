"""Locks by name in a database of the platform.

Only a role that may write the log can take one: each is a row of `onlyonce_private.locks`.

A short lock is the row's own lock, for one transaction. A lock for hours (a driver, a deliverer) is held by a session:
the row names it, and PostgreSQL lists a session until its process has ended, however it ended.
"""

from __future__ import annotations

from sqlalchemy import Connection

from onlyonce.database.connect import ask, do


def wait(connection: Connection, name: str) -> None:
    """Take a lock until the transaction ends."""
    do(connection, "locks", "add", name=name)
    while not ask(connection, "locks", "wait", name=name):  # a drop has removed the row meanwhile
        do(connection, "locks", "add", name=name)


def if_free(connection: Connection, name: str) -> bool:
    """Take a lock until the transaction ends, unless another transaction has it. Return whether it was taken."""
    do(connection, "locks", "add", name=name)
    return bool(ask(connection, "locks", "if_free", name=name))


def hold(connection: Connection, name: str) -> bool:
    """Take a lock until this session ends, unless another session has it.

    Return whether this session has it. Call it in autocommit.
    """
    for holder in ask(
        connection, "locks", "holder", name=name
    ):  # a session that stands by asks often, and writes nothing
        if holder.lives:
            return bool(holder.ours)
    return bool(ask(connection, "locks", "hold", name=name))


def forget(connection: Connection, instances: list[str]) -> None:
    """Remove the locks of instances that are dropped."""
    do(connection, "locks", "forget", instances=instances)
