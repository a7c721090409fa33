"""How rows are cut for a server of MySQL, and how sessions of earlier drivers are ended there. Pure."""

from __future__ import annotations

import json
from collections import namedtuple
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from onlyonce.core.errors import Refused
from onlyonce.database import mysql
from onlyonce.sinks.mysql import mysql_rows

Session = namedtuple("Session", ("name", "connection"))


def test_rows_are_sent_in_order_in_arrays_of_at_most_so_many_bytes_or_of_one_row() -> None:
    """A server whose packets are small gets smaller ones."""
    rows = [json.dumps(["x" * length]) for length in (6, 6, 50, 6, 6, 6)]

    for size, lengths in ((22, [2, 1, 2, 1]), (1, [1] * 6), (mysql_rows.CHUNK, [6])):
        found = [json.loads(chunk) for chunk in mysql_rows.chunks(pa.array(rows), size)]
        assert [len(chunk) for chunk in found] == lengths
        assert [row for chunk in found for row in chunk] == [json.loads(row) for row in rows]


class Server:
    """A connection to a server with sessions of three earlier drivers, of which KILL gives an error for the second."""

    engine = type("Engine", (), {"url": make_url("mysql+pymysql://loader@db/shop")})

    def __init__(self, code: int) -> None:
        self.code, self.done = code, list[str]()

    def execute(self, _statement: object, given: dict[str, Any]) -> Server:
        """Note the sessions that are removed."""
        self.done += [f"remove {' '.join(given['names'])}"] if "names" in given else []
        return self

    def all(self) -> list[Session]:
        """The sessions; the last has ended."""
        return [Session("a", 1), Session("b", 2), Session("c", None)]

    def exec_driver_sql(self, statement: str, given: tuple[int]) -> None:
        """End a session."""
        if given == (2,):
            raise OperationalError(statement, given, Exception(self.code, "no"))
        self.done.append(f"{statement % given}")


def test_a_session_that_has_ended_is_no_error_and_one_that_may_not_be_ended_is() -> None:
    """It could hold the epoch's row for as long as it is stalled, and nobody would know why the run waits."""
    ended: Any = Server(1094)
    mysql.end_older_sessions(ended, None, 7, 3)
    assert ended.done == ["KILL 1", "remove a b c"]

    kept: Any = Server(1095)
    with pytest.raises(Refused, match="does not let loader end session 2") as told:
        mysql.end_older_sessions(kept, None, 7, 3)
    assert "CONNECTION_ADMIN" in told.value.hint
    assert kept.done == ["KILL 1"]

    with pytest.raises(OperationalError):
        mysql.end_older_sessions(Server(2013), None, 7, 3)  # type: ignore[arg-type]
