"""Statements by concern: a class for each, whose public methods are one transaction.

Over a database a method runs in a transaction of its own, and again while the database is away (`connect.run`). Over a
connection it is a part of that connection's transaction: so methods are put together from others.

Who calls it: `onlyonce.commitlog` and `onlyonce.catalog`. Errors: those of `run`; AssertionError where statements are
run outside a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection

from onlyonce.database.connect import Database, run, snapshot, transaction

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Scope = Database | Connection
"""Where methods run: each in a transaction of its own, or all within one that is open."""
Concern = TypeVar("Concern", bound="Transactions")


class Transactions:
    """The transactions of one concern, in a database or within a transaction that is open."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @classmethod
    @contextmanager
    def once(cls, database: Database) -> Iterator[Self]:
        """One transaction that the caller puts together, and that is not tried again."""
        with transaction(database) as connection:
            yield cls(connection)

    @classmethod
    @contextmanager
    def at_one_moment(cls, database: Database) -> Iterator[Self]:
        """The same, which sees one moment only and changes nothing."""
        with cls.once(database) as found:
            snapshot(found.connection)
            yield found

    @property
    def connection(self) -> Connection:
        """The open transaction."""
        assert isinstance(self.scope, Connection), "a method with statements must be @one_transaction"
        return self.scope


def one_transaction(
    work: Callable[Concatenate[Concern, Asked], Answer],
) -> Callable[Concatenate[Concern, Asked], Answer]:
    """Make a method one transaction, or a part of the one that is open."""

    @wraps(work)
    def whole(self: Concern, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        if isinstance(self.scope, Connection):
            return work(self, *args, **kwargs)
        return run(self.scope, lambda connection: work(type(self)(connection), *args, **kwargs))

    return whole
