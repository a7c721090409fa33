"""A concern's method is one transaction, or a part of the one that is open."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, make_url
from sqlalchemy.exc import InternalError

from onlyonce import Refused
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.database.connect import Database, Transactions, ask, one_transaction, run, snapshot
from tests.contract.conftest import Log


class Instances(Transactions):
    """Methods that are put together from others."""

    @one_transaction
    def add(self, *names: str) -> None:
        """Each name by a method of another concern; "" ends it."""
        for name in names:
            if not name:
                raise KeyboardInterrupt
            Incarnations(self.connection).add_instance(name, name)

    @one_transaction
    def level(self) -> str:
        """The isolation of the transaction."""
        return str(self.connection.exec_driver_sql("SHOW transaction_isolation").scalar())

    def forgotten(self) -> None:
        """Ask without a transaction."""
        ask(self.connection, "gc", "instances")


def names(log: Log) -> set[str]:
    """The instances that are committed."""
    return {name for (name,) in log.rows("SELECT instance FROM onlyonce_private.pipelines")}


def test_all_that_a_method_has_done_is_committed_or_nothing(log: Log) -> None:
    """Also what methods of other concerns have done within it."""
    before = names(log)
    with pytest.raises(KeyboardInterrupt):
        Instances(log.database).add("one", "two", "")
    assert names(log) == before

    Instances(log.database).add("one", "two")
    assert names(log) == before | {"one", "two"}


def test_methods_in_an_open_transaction_are_committed_with_it(log: Log) -> None:
    """Nothing is there before, and nothing where it is rolled back."""
    before = names(log)

    def killed() -> None:
        with Instances.once(log.database) as instances:
            instances.add("one")
            assert names(log) == before
            instances.add("")

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert names(log) == before

    with Instances.once(log.database) as instances:
        instances.add("one")
        Instances(instances.scope).add("two")
    assert names(log) == before | {"one", "two"}


def test_methods_at_one_moment_see_one_snapshot(log: Log) -> None:
    """Not what is committed meanwhile."""
    with Instances.at_one_moment(log.database) as instances:
        assert instances.level() == "repeatable read"
    assert Instances(log.database).level() == "read committed"


def test_statements_outside_a_transaction_fail_at_once(log: Log) -> None:
    """Two of them would be committed apart."""
    with pytest.raises(AssertionError, match="@one_transaction"):
        Instances(log.database).forgotten()


def test_url_that_can_not_work_is_refused_without_patience(log: Log) -> None:
    """A database that is not there; the reader's URL where the writer's belongs. To run it again changes nothing."""
    url = make_url(log.database.url)
    gone = Database(url.set(database="not_there").render_as_string(hide_password=False), "a test")
    with pytest.raises(
        Refused, match=f'does not let {url.username} in: database "not_there" does not exist'
    ) as refused:
        Instances(gone).level()
    assert "CREATE DATABASE not_there" in refused.value.hint

    reader = Database(log.server.url("reader", log.name), "a test")
    with pytest.raises(Refused, match="lets onlyonce_reader read, but not write") as refused:
        run(reader, lambda connection: connection.exec_driver_sql("CREATE TABLE a (b int)"))
    assert "ONLYONCE_READER_URL" in refused.value.hint


def test_our_own_transaction_that_only_reads_is_not_taken_for_the_role(log: Log) -> None:
    def write(connection: Connection) -> None:
        snapshot(connection)
        connection.exec_driver_sql("CREATE TABLE a (b int)")

    with pytest.raises(InternalError, match="read-only transaction"):
        run(log.database, write)
