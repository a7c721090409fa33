"""The MySQL sink's unit and table, on a real MariaDB: what is written, what is refused, and that nothing commits before
the unit."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from pyspark.sql import types as T
from pyspark.sql.types import DecimalType, StructField, StructType
from sqlalchemy import text

from onlyonce.api.pipeline import MySQL, Output
from onlyonce.commitlog import units
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import DatabaseAway, InvariantBroken, Refused, Retryable, Superseded
from onlyonce.core.ownership import Place
from onlyonce.core.units import UnitId
from onlyonce.database import connect, migrate, mysql
from onlyonce.database.connect import Database
from onlyonce.sinks.mysql import mysql_rows, mysql_target
from onlyonce.sinks.mysql.sink_mysql import MySQLTable, StoredInMySQL
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.testing.scratch import Log
from onlyonce.testing.suite import hashed, run_unit
from tests.contract.conformance_mysql import VARIABLE, batch_of
from tests.contract.conftest import platform_of
from tests.support.erasure_places import plants
from tests.support.mariadb import MariaDB

TEXTS = [
    None, "", " ", "a", "a ", "null", "NULL", r"\N", "\\", r"C:\new\table", '"', "it's", "a,b;c\td", "one\ntwo", "\r\n", "nul \x00 sign",
    "🛒 çé 漢字 \u202e", "{\"a\": 1}", "$1 %s :x %(y)s", "-- x", "x" * 20_000,
]  # fmt: skip
WINDOWED = (
    "shop varchar(50) collate utf8mb4_nopad_bin NOT NULL PRIMARY KEY, window_start datetime(6), window_end "
    "datetime(6), cents bigint"
)

KINDS: dict[str, T.DataType] = {
    "string": T.StringType(), "int": T.IntegerType(), "long": T.LongType(), "boolean": T.BooleanType(), "double": T.DoubleType(),
    "float": T.FloatType(), "timestamp": T.TimestampType(), "date": T.DateType(), "binary": T.BinaryType(),
    "array<int>": T.ArrayType(T.IntegerType()),
}  # fmt: skip


@dataclass
class There:
    """A database of a sink, and a driver that may commit in it."""

    log: Log
    server: MariaDB
    driver: Driver
    name: str
    number: int = field(default=0)

    @property
    def database(self) -> Database:
        """As the sink has it."""
        return Database(self.server.url(self.name))

    @property
    def session(self) -> Database:
        """As the driver has it."""
        return self.driver.session(self.database, platform_of(self.log))

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        """What a reader sees."""
        return self.server.rows(self.name, statement, *parameters)

    def write(
        self, columns: str, *rows: list[Any], write: str = "append", keys: tuple[str, ...] = (), **more: Any
    ) -> None:
        """A unit of a batch of its own, in `kept`; columns that end in ! travel in hexadecimal."""
        names = columns.split()
        texts = more.pop("texts", ())
        loaded = mysql_rows.Loaded(tuple(n.rstrip("!") for n in names), tuple(n.endswith("!") for n in names), texts)
        unit = UnitId(self.driver.incarnation, more.pop("batch", self.number), "per_shop", 0)
        work = postgres_unit.Work(self.session, unit, self.driver.epoch, "", "kept", write, keys, (), **more)
        self.number += 1
        brought = iter([hashed(batch_of(list(rows)), 0)] if rows else [])
        run_unit(postgres_unit.write_unit(work, mysql_rows.putting(loaded)), brought, 0)

    def prepare(self, ddl: str, **sink: Any) -> None:
        """What a run does before its first batch."""
        self.table(**sink).prepare(self.schema(ddl))

    def table(self, **sink: Any) -> MySQLTable:
        """The table as an output declares it."""
        declared = MySQL(table="kept", connection=VARIABLE, **sink)
        return MySQLTable(self.database, Output(name="per_shop", transform="a:b", sink=declared), declared, "")

    @staticmethod
    def schema(ddl: str) -> StructType:
        """The columns of an output's rows."""
        fields = [part.split(" ") for part in ddl.split(", ")]
        return StructType(
            [
                StructField(name, KINDS.get(kind) or DecimalType(*map(int, kind[8:-1].split(","))))
                for name, kind in fields
            ]
        )


@pytest.fixture
def there(shared: Log, mariadb: MariaDB) -> Iterator[There]:
    """A fresh database."""
    name = mariadb.new_database()
    with mock.patch.dict(os.environ, {VARIABLE: mariadb.url(name)}):
        driver = shared.start(f"shop_{name}", "per_shop")
        units.adopt_authority(shared.database, driver, VARIABLE)
        yield There(shared, mariadb, driver, name)
    mariadb.rows("", f"DROP DATABASE {name}")


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_texts_arrive_as_they_are(there: There, write: str) -> None:
    """Whatever the database's own character set is; null and '' stay apart."""
    there.prepare("n int, s string", **({} if write == "append" else {"write": "upsert", "keys": "n"}))
    there.write("n s", *[[n, s] for n, s in enumerate(TEXTS)], write=write, keys=() if write == "append" else ("n",))

    assert Counter(there.rows("SELECT n, s FROM kept")) == Counter(enumerate(TEXTS))


@pytest.mark.parametrize("sink", [{}, {"write": "upsert", "keys": ("n",)}], ids=["append", "upsert"])
def test_strings_arrive_in_a_table_that_is_not_utf8(there: There, sink: dict[str, Any]) -> None:
    """Each character that the encoding has is stored as itself; one that it lacks is refused, and nothing is
    written."""
    there.rows("CREATE TABLE kept (n int NOT NULL PRIMARY KEY, s longtext) CHARACTER SET latin1")
    there.prepare("n int, s string", **sink)
    there.write("n s", ["1", "café Ãé"], **sink)
    with pytest.raises(Refused, match="Incorrect string value"):
        there.write("n s", ["2", "漢字"], **sink)

    assert there.rows("SELECT n, s, CHAR_LENGTH(s) FROM kept") == [(1, "café Ãé", 7)]


@pytest.mark.parametrize(
    "ddl, bad, cause",
    [
        ("n double", "NaN", "double"), ("n long", "9223372036854775808", "ange"), ("n timestamp", "12345-01-01 00:00:00", "12345"),
        ("n decimal(4,2)", "1000.00", "ange"), ("k string, n long", None, "null"), ("k string", "k" * 300, "too long"),
    ],
)  # fmt: skip
def test_rows_that_the_table_cannot_hold_are_refused_with_the_cause(
    there: There, ddl: str, bad: Any, cause: str
) -> None:
    """None is cut, rounded or left out, and nothing of the unit is written."""
    name = ddl.split()[0]
    upsert: dict[str, Any] = {"write": "upsert", "keys": ("k",)} if name == "k" else {}
    there.prepare(ddl, **upsert)
    with pytest.raises(Refused, match=rf"per_shop/0: kept can't hold its rows: .*(?i:{cause})"):
        there.write(name, ["2026-01-01 00:00:00" if "timestamp" in ddl else "1"], [bad], **upsert)

    assert there.rows("SELECT * FROM kept") == there.rows("SELECT * FROM onlyonce_units") == []


@plants("rows of MySQL")
def test_rows_are_searched_for_an_erasure(there: There) -> None:
    """Each table of the output, and how its rows go."""
    there.prepare("id string")
    there.write("id", ["u17-secret"], ["other"])
    mentions = Mentions(erasure.read_conditions("id = 'u17-secret'", {"id": "string"}))

    found = [*StoredInMySQL(there.log.database, MySQL(table="kept", connection=VARIABLE)).rows(mentions)]

    assert [(rows.at, rows.count, rows.goes) for rows in found] == [
        ("table kept", 1, "delete these rows in your table")
    ]


@plants("statistics of MySQL")
def test_statistics_of_columns_keep_values_until_they_are_made_anew(there: There) -> None:
    """MariaDB's of a table of a team's own, as MySQL's histograms: no search reads them, and the receipt says how they
    go."""
    there.rows("CREATE TABLE kept (id varchar(100))")
    there.rows("INSERT INTO kept VALUES ('u17-secret'), ('other')")

    def kept() -> str:
        return str(
            there.rows(f"SELECT * FROM mysql.column_stats WHERE db_name = '{there.name}' AND table_name = 'kept'")
        )

    there.rows("ANALYZE TABLE kept PERSISTENT FOR ALL")
    before = kept()
    there.rows("DELETE FROM kept WHERE id = 'u17-secret'")
    deleted = kept()
    there.rows("ANALYZE TABLE kept PERSISTENT FOR ALL")

    assert ["u17-secret" in one for one in (before, deleted, kept())] == [True, True, False]
    stays = StoredInMySQL(there.log.database, MySQL(table="kept", connection=VARIABLE)).stays()
    assert "statistics that ANALYZE TABLE keeps of columns (histograms) have values until it makes them again" in stays


def test_two_rows_with_the_same_keys_stop_an_upsert(there: There) -> None:
    """Which of them would stay is nobody's guess; keys that differ by a letter's size or a space are two."""
    there.prepare("k string, n long", write="upsert", keys="k")
    there.write("k n", ["a", 1], ["A", 2], ["a ", 3], write="upsert", keys=("k",))
    with pytest.raises(InvariantBroken, match=r"two rows have the same keys \(k\)"):
        there.write("k n", ["b", 1], ["b", 2], write="upsert", keys=("k",))

    assert Counter(there.rows("SELECT k, n FROM kept")) == Counter([("a", 1), ("A", 2), ("a ", 3)])


def test_an_upsert_without_the_window_keeps_the_row_of_the_later_one(there: There) -> None:
    """Whichever comes first, all of its columns or none; the same window replaces its own."""
    there.rows(f"CREATE TABLE kept ({WINDOWED})")
    for hour, cents in [(None, 0), (2, 2), (1, 1), (2, 20)]:
        times = [None if hour is None else f"2026-01-01 {hour + more:02}:00:00" for more in (0, 1)]
        there.write(
            "window_end shop cents window_start", [times[1], "a", cents, times[0]], write="upsert", keys=("shop",)
        )
        [(kept, start)] = there.rows("SELECT cents, hour(window_start) FROM kept")
        assert (kept, start) == ({0: (0, None), 2: (2, 2), 1: (2, 2), 20: (20, 2)}[cents])


def test_an_upsert_of_keys_alone_adds_what_is_new(there: There) -> None:
    """There is nothing to replace."""
    there.prepare("k string", write="upsert", keys="k")
    for number in range(2):
        there.write("k", ["a"], [f"b{number}"], write="upsert", keys=("k",))

    assert sorted(there.rows("SELECT k FROM kept")) == [("a",), ("b0",), ("b1",)]


def test_windows_are_replaced_in_the_transaction_of_the_unit(there: There) -> None:
    """Those that start in the span, whatever they held; the others stay; a second attempt finds the unit."""
    there.prepare("n long, window_start timestamp, window_end timestamp")
    rows: list[list[Any]] = [
        [hour, f"2026-01-01 {hour:02}:00:00", f"2026-01-01 {hour + 1:02}:00:00"] for hour in range(4)
    ]
    there.write("n window_start window_end", *rows)
    for _ in range(2):
        there.write(
            "n window_start window_end", [10 * rows[1][0], *rows[1][1:]], write="replace", batch=7,
            windows=("2026-01-01 01:00:00.000000", "2026-01-01 03:00:00.000000"),
        )  # fmt: skip

    assert sorted(there.rows("SELECT n FROM kept")) == [(0,), (3,), (10,)]


def test_a_row_larger_than_a_statement_of_the_server_is_refused_before_it_is_sent(there: There) -> None:
    """Else the server ends the session, and each attempt would look like one more outage."""
    there.prepare("s string")
    with pytest.raises(Refused, match="larger than the server takes"):
        there.write("s", ["x" * (17 << 20)])


def test_many_rows_are_few_statements(there: There) -> None:
    """A statement for each is what it costs otherwise."""
    there.prepare("n long, s string")
    before = int(there.rows("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])
    there.write("n s", *[[n, "text"] for n in range(5000)])

    assert int(there.rows("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1]) - before < 100
    assert there.rows("SELECT count(*), sum(n) FROM kept") == [(5000, 5000 * 4999 // 2)]


# --- the table --------------------------------------------------------------------------------------------------------

UPSERT: dict[str, Any] = {"write": "upsert", "keys": ("k",)}
K = "k varchar(99) collate utf8mb4_nopad_bin NOT NULL"
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "MyISAM": (f"CREATE TABLE kept ({K}, n bigint) ENGINE = MyISAM", {}, "table of MyISAM: .*can't be committed together"),
    "Aria": (f"CREATE TABLE kept ({K}, n bigint) ENGINE = Aria", {}, "table of Aria"),
    "a view": ("CREATE VIEW kept AS SELECT 'a' AS k, 1 AS n", {}, "is a view"),
    "no key": (f"CREATE TABLE kept ({K}, n bigint)", UPSERT, "no primary key or unique index over its keys"),
    "a longer key": (f"CREATE TABLE kept ({K}, n bigint, PRIMARY KEY (k, n))", UPSERT, "no primary key or unique index"),
    "a key's beginning": ("CREATE TABLE kept (k text collate utf8mb4_nopad_bin NOT NULL, n bigint, PRIMARY KEY (k(10)))", UPSERT, r"column k is string \(varchar"),
    "another unique index": (f"CREATE TABLE kept ({K} PRIMARY KEY, n bigint UNIQUE)", UPSERT, "another unique index"),
    "a null key": (f"CREATE TABLE kept ({K.removesuffix('NOT NULL')}, n bigint, UNIQUE (k))", UPSERT, "may be null"),
    "a key without case": ("CREATE TABLE kept (k varchar(99) collate utf8mb4_general_ci PRIMARY KEY, n bigint)", UPSERT, "different texts are the same key"),
    "a generated column": (f"CREATE TABLE kept ({K}, n bigint AS (1) STORED)", {}, "column n of kept is GENERATED ALWAYS"),
    "a generated column in other letters": (f"CREATE TABLE kept ({K}, N bigint AS (1) STORED)", {}, "column n of kept is GENERATED ALWAYS"),
    "a required column": (f"CREATE TABLE kept ({K}, theirs int NOT NULL)", {}, r"kept requires the column theirs \(NOT NULL\)"),
    "another type": (f"CREATE TABLE kept ({K}, n int)", {}, "column n is bigint, but in kept it is int"),
    "a text that is cut": ("CREATE TABLE kept (k char(9), n bigint)", {}, r"column k is string \(longtext\), but in kept it is char"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_keep_the_promise_is_refused_unchanged(
    there: There, case: tuple[str, dict[str, Any], str]
) -> None:
    """Before the first batch; no column was added, though one is missing."""
    made, sink, says = case
    there.rows(made)
    with pytest.raises(Refused, match=says):
        there.prepare("k string, n long, new string", **sink)

    assert len(there.rows("SHOW COLUMNS FROM kept")) == 2


def test_an_index_with_the_beginning_of_a_column_is_no_key_index(there: There) -> None:
    """A row of the same keys would be a second one."""
    there.rows(f"CREATE TABLE kept ({K}, n bigint, new varchar(99), UNIQUE (k, new(10)))")
    with pytest.raises(Refused, match="no primary key or unique index over its keys"):
        there.prepare("k string, n long, new string", **UPSERT)


@pytest.mark.parametrize(
    "case",
    [case for name, case in REFUSED.items() if name not in ("a key's beginning", "another type", "a text that is cut")],
    ids=lambda case: case[2],
)
def test_check_reports_what_a_run_would_refuse(there: There, case: tuple[str, dict[str, Any], str]) -> None:
    """`onlyonce check` reads the table; types it compares itself, with the file and line of the declaration."""
    made, sink, says = case
    there.rows(made)
    with pytest.raises(Refused, match=says):
        there.table(**sink).check(there.schema("k string, n long, new string"))


@pytest.mark.parametrize("when", ["prepare", "check"])
def test_name_of_a_column_that_mysql_does_not_take_is_refused(there: There, when: str) -> None:
    """Before there is a table. A name of 64 characters is taken, whatever their bytes."""
    fits, long = "é" * 64, "é" * 65
    with pytest.raises(Refused, match="é has 65 characters, and the database takes 64"):
        getattr(there.table(), when)(there.schema(f"k string, {long} long"))
    assert there.rows("SHOW TABLES LIKE 'kept'") == []

    getattr(there.table(), when)(there.schema(f"k string, {fits} long"))


@pytest.mark.parametrize("key", ["k", "K"])
def test_a_table_of_the_users_own_gets_the_columns_that_it_lacks(there: There, key: str) -> None:
    """And keeps what it has, in its own letters; the same again changes nothing."""
    there.rows(f"CREATE TABLE kept ({K.replace('k', key, 1)} PRIMARY KEY, n bigint, theirs int DEFAULT 7)")
    for _ in range(2):
        there.prepare("k string, n long, new string", **UPSERT)
    there.write("k n new", ["a", 1, "x"], **UPSERT)

    assert there.rows("SELECT k, n, theirs, new FROM kept") == [("a", 1, 7, "x")]
    assert [mysql_target.is_there(Place(f"mysql:{VARIABLE}:{name}")) for name in ("kept", "other")] == [True, False]


def test_another_platform_does_not_write_under_the_same_name(there: There, new_log: Any) -> None:
    """Its epochs would fence ours, and its units would pass for ours."""
    other = new_log()
    with pytest.raises(Refused, match="of another platform, under the same name"):
        units.adopt_authority(other.database, other.start(there.driver.incarnation.split("/")[0], "per_shop"), VARIABLE)


def test_no_session_opens_in_a_database_of_another_format(there: There) -> None:
    """Whoever asks: a run, a drop, the doctor. A task's driver has asked."""
    there.server.rows(there.name, "UPDATE onlyonce_formats SET format = 'another'")
    connect.forget_connections()

    with (
        pytest.raises(Refused, match="the sink's database has the format another"),
        connect.transaction(there.database),
    ):
        pass


def test_tables_are_made_only_under_their_lock(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that does not get it in time makes nothing: it would make them beside the one that has it."""
    monkeypatch.setattr(migrate, "MYSQL_LOCK_SECONDS", 0)
    connect.forget_connections()
    with connect.transaction(there.database) as other:
        assert other.exec_driver_sql(f"SELECT GET_LOCK({migrate.MYSQL_LOCK}, 0)").scalar() == 1
        with pytest.raises(Retryable, match="another session has been making tables"):
            migrate.migrate_authority(there.database.url)
    connect.forget_connections()


def test_a_driver_that_was_overtaken_writes_nothing(there: There) -> None:
    """Superseded; and its session is ended while it holds the epoch."""
    there.prepare("n long")
    session = there.session
    newer = there.log.restart(there.driver)

    def hold() -> None:
        with connect.transaction(session) as holding:
            Incarnations(holding).check_epoch(there.driver.incarnation, there.driver.epoch)
            units.adopt_authority(there.log.database, newer, VARIABLE)
            holding.execute(text("SELECT 1"))

    with pytest.raises(DatabaseAway):
        hold()
    with pytest.raises(Superseded):
        there.write("n", [1])

    assert there.rows("SELECT * FROM kept") == there.rows("SELECT * FROM onlyonce_units") == []


def test_a_start_leaves_the_sessions_of_another_platform_in_mysql_alone(
    there: There, new_log: Callable[[], Log]
) -> None:
    """Its incarnation may have the same number. The start ends its platform's older session is ended."""
    other = new_log()
    theirs = replace(other.start("mill", "per_shop"), number=there.driver.number)
    newer = replace(other.restart(theirs), number=there.driver.number)
    assert newer.epoch > there.driver.epoch

    def start_again() -> None:
        with connect.transaction(theirs.session(there.database, platform_of(other))) as ended:
            units.adopt_authority(other.database, newer, VARIABLE)
            ended.execute(text("SELECT 1"))

    with connect.transaction(there.session) as holding:
        with pytest.raises(DatabaseAway):
            start_again()
        assert holding.execute(text("SELECT 1")).scalar() == 1


def test_ended_sessions_are_forgotten_by_one_statement(there: There) -> None:
    """Each task has had a session: a new driver asks the same, however many have ended."""
    asked = []
    for ended in (0, 1, 50):
        sessions = [f"{mysql.short(platform_of(there.log))}{str(uuid4())[mysql.SHORT :]}" for _ in range(ended)]
        names = ", ".join(f"('{name}', {there.driver.number}, {there.driver.epoch})" for name in sessions)
        if names:
            there.rows(f"INSERT INTO onlyonce_sessions (name, number, epoch) VALUES {names}")
        there.driver = there.log.restart(there.driver)
        before = int(there.rows("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])
        units.adopt_authority(there.log.database, there.driver, VARIABLE)
        asked.append(int(there.rows("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1]) - before)

    assert asked[1] == asked[2]
    assert there.rows("SELECT * FROM onlyonce_sessions") == []
