"""The newest row of each key, deletes and histories in MySQL, on a real MariaDB: whatever comes first, comes again or
is killed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.database import mysql
from onlyonce.database.connect import run
from onlyonce.sinks.mysql import mysql_rows
from onlyonce.sinks.postgres import postgres_unit
from tests.contract.sinks.test_mysql_sink import There, there  # noqa: F401 - a fixture
from tests.contract.sinks.test_newest_rows import POINTS, Killed
from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "k string, position long, value long, gone boolean"
UPSERT: dict[str, Any] = {"write": "upsert", "keys": ("k",), "sequence_by": ("position",), "delete_when": "gone"}
HISTORY = UPSERT | {"write": "history"}


@dataclass
class Table:
    """The table of an output that is written by a unit for each batch."""

    there: There
    sink: dict[str, Any]
    texts: tuple[str, ...] = ("k",)

    def prepare(self) -> Table:
        """What a run does before its first batch."""
        self.there.prepare(COLUMNS + (", valid_from timestamp" if self.sink["write"] == "history" else ""), **self.sink)
        return self

    def write(self, batch: int, changes: Iterable[Change]) -> None:
        """A unit; one that is there is compared."""
        rows = [[one.key, one.position, one.value, int(one.deleted), *self._since(one)] for one in changes]
        self.there.write(
            f"k position value gone {'valid_from' if self.sink['write'] == 'history' else ''}",
            *rows,
            batch=batch,
            texts=self.texts,
            **self.sink,
        )

    def killed(self, batch: int, changes: Iterable[Change], point: str) -> None:
        """The same, ended where it first passes a point; it may pass none."""

        def kill(name: str) -> None:
            if name == point:
                raise Killed

        with pytest.MonkeyPatch.context() as killing, suppress(Killed):
            for module in (postgres_unit, mysql_rows):
                killing.setattr(module, "passing", kill)
            self.write(batch, changes)

    def rows(self) -> set[Any]:
        """(key, position, value) of each row."""
        return {*self.there.rows("SELECT k, position, value FROM kept")}

    def deleted(self) -> set[Any]:
        """(key, position) of what was deleted."""
        return {*self.there.rows("SELECT k, position FROM kept_deleted")}

    def versions(self) -> set[Any]:
        """The history, times as seconds since `START`."""
        found = self.there.rows(
            f"SELECT k, position, value, timestampdiff(SECOND, '{START:%F}', valid_from), timestampdiff(SECOND, "
            f"'{START:%F}', valid_to), is_current FROM kept"
        )
        return {(*row[:5], bool(row[5])) for row in found}

    def _since(self, change: Change) -> list[str]:
        return [f"{START + timedelta(seconds=change.position):%F %T}"] if self.sink["write"] == "history" else []


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
@pytest.mark.parametrize("write", ["upsert", "history"])
def test_the_table_is_what_the_source_has(there: There, write: str, seed: int) -> None:  # noqa: F811
    """Changes that come again and out of order, in any batches, with kills at each point and batches written again."""
    chance = random.Random(seed)
    table = Table(there, UPSERT | {"write": write}).prepare()
    seen: list[Change] = []
    for number, batch in enumerate(
        source.cut(chance, source.delivered(chance, source.made(chance, keys=6, changes=70)))
    ):
        # As `results.measured` gives them to a sink: of an upsert the newest of each key, of a history each change that
        # receive has kept.
        rows = [*source.newest(batch).values()] if write == "upsert" else sorted({*batch} - {*seen})
        if chance.random() < 0.5:
            table.killed(number, rows, chance.choice(POINTS))
        for _ in range(chance.choice([1, 1, 2])):
            table.write(number, rows)
        seen += batch
        if write == "history":
            assert table.versions() == source.history(seen)
            continue
        assert table.rows() == source.table(seen)
        assert table.deleted() == {(one.key, one.position) for one in source.newest(seen).values() if one.deleted}
    assert len(there.rows("SELECT k FROM kept")) == len(table.rows())


def test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does(there: There) -> None:  # noqa: F811
    """The key and its position stay as long as it is deleted, and no longer; also of a key that never came."""
    table = Table(there, UPSERT).prepare()
    table.write(0, [Change(1, "a", "c", 10)])
    table.write(1, [Change(5, "a", "d", 10), Change(5, "b", "d", 0)])
    table.write(2, [Change(4, "a", "u", 40), Change(4, "b", "c", 40)])
    assert (table.rows(), table.deleted()) == (set(), {("a", 5), ("b", 5)})
    table.write(3, [Change(6, "a", "c", 60)])
    table.write(4, [Change(3, "a", "d", 10)])
    assert (table.rows(), table.deleted()) == ({("a", 6, 60)}, {("b", 5)})


@pytest.mark.parametrize("first", source.TIED, ids=lambda change: change.op)
def test_delete_at_a_version_s_position_comes_after_it(there: There, first: Change) -> None:  # noqa: F811
    """Whichever of the two comes first."""
    table = Table(there, HISTORY).prepare()
    for number, batch in enumerate(source.tied(first)):
        table.write(number, batch)
    assert table.versions() == source.TIED_HISTORY


def test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete(there: There) -> None:  # noqa: F811
    """The one before it ends at the late one, and the current one stays current."""
    table = Table(there, HISTORY).prepare()
    table.write(0, [Change(1, "a", "c", 10), Change(9, "a", "u", 30)])
    table.write(1, [Change(4, "a", "u", 20)])
    table.write(2, [Change(6, "a", "d", 20)])
    assert table.versions() == {("a", 1, 10, 1, 4, False), ("a", 4, 20, 4, 6, False), ("a", 9, 30, 9, None, True)}


def test_the_order_is_that_of_all_columns_and_of_the_bytes_of_texts(there: There) -> None:  # noqa: F811
    """The first decides, then the second, whole rows or nothing; in a table whose texts are put in order by a language,
    and with one of no position."""
    sink: dict[str, Any] = {"write": "upsert", "keys": ("k",), "sequence_by": ("term", "place")}
    there.rows(
        "CREATE TABLE kept (k varchar(9) collate utf8mb4_nopad_bin PRIMARY KEY, term varchar(9) collate "
        "utf8mb4_general_ci, place bigint, n bigint)"
    )
    there.rows("INSERT INTO kept VALUES ('x', NULL, NULL, 0)")
    there.prepare("k string, term string, place long, n long", **sink)
    for n, (term, place) in enumerate(
        [("a", 1), ("B", 9), ("b", 1), ("b", 3), ("b", 2), ("c", 0), ("C", 9), ("c", 0)], 1
    ):
        there.write("k term place n", ["x", term, place, n], texts=("k", "term"), **sink)
        wanted = {
            1: ("a", 1, 1),
            2: ("a", 1, 1),
            3: ("b", 1, 3),
            4: ("b", 3, 4),
            5: ("b", 3, 4),
            6: ("c", 0, 6),
            7: ("c", 0, 6),
            8: ("c", 0, 8),
        }
        assert there.rows("SELECT term, place, n FROM kept") == [wanted[n]]


def test_a_stored_row_with_a_null_in_its_order_is_the_older_of_equal_ones(there: There) -> None:  # noqa: F811
    """As of a table that was there before the column: nulls come first, as in Spark, and a larger first column wins."""
    sink: dict[str, Any] = {"write": "upsert", "keys": ("k",), "sequence_by": ("term", "place")}
    there.rows(
        "CREATE TABLE kept (k varchar(9) collate utf8mb4_nopad_bin PRIMARY KEY, term bigint, place bigint, n bigint)"
    )
    there.rows("INSERT INTO kept VALUES ('equal', 5, NULL, 0), ('larger', 5, NULL, 0), ('none', NULL, 1, 0)")
    there.prepare("k string, term long, place long, n long", **sink)
    there.write("k term place n", ["equal", 5, 0, 1], ["larger", 4, 0, 1], ["none", 4, 0, 1], texts=("k",), **sink)
    found = there.rows("SELECT k, term, place, n FROM kept ORDER BY k")
    assert found == [("equal", 5, 0, 1), ("larger", 5, None, 0), ("none", 4, 0, 1)]


def test_rows_of_which_none_is_the_newest_are_refused_and_change_nothing(there: There) -> None:  # noqa: F811
    """A position or a mark that is missing, and two rows of a key, also where one of them is a delete; of a history two
    at one position."""
    table = Table(there, UPSERT).prepare()
    table.write(0, [Change(0, "a", "c", 1)])
    for rows, said in (
        ([["a", None, 1, 0]], "column 'position' is null"),
        ([["a", 1, 1, None]], "can't hold its rows: .*gone"),
    ):
        with pytest.raises(Refused, match=said):
            there.write("k position value gone", *rows, **UPSERT)
    with pytest.raises(InvariantBroken, match=r"two rows have the same keys \(k\)"):
        table.write(3, [Change(1, "a", "u", 10), Change(1, "a", "d", 10)])
    assert (table.rows(), table.deleted()) == ({("a", 0, 1)}, set())


def test_two_versions_at_one_position_are_refused(there: There) -> None:  # noqa: F811
    """And one without a beginning."""
    table = Table(there, HISTORY).prepare()
    with pytest.raises(InvariantBroken, match=r"two rows have the same keys \(k, position\)"):
        table.write(0, [Change(1, "a", "c", 1), Change(1, "a", "u", 2)])
    with pytest.raises(Refused, match="column 'valid_from' is null"):
        there.write("k position value gone valid_from", ["a", 1, 1, 0, None], **HISTORY)
    assert table.versions() == set()


def test_a_table_of_that_name_that_is_somebody_elses_is_neither_written_nor_dropped(there: There) -> None:  # noqa: F811
    """What the platform has made goes with the table next to it it."""
    there.rows("CREATE TABLE kept_deleted (k int)")
    with pytest.raises(Refused, match="there is a table kept_deleted, which is not the platform's"):
        Table(there, UPSERT).prepare()
    run(there.database, lambda conn: mysql.drop_table(conn, "kept"))
    assert there.rows("SHOW TABLES LIKE 'kept%'") == [("kept_deleted",)]
    there.rows("DROP TABLE kept_deleted")
    Table(there, UPSERT).prepare()
    run(there.database, lambda conn: mysql.drop_table(conn, "kept"))
    assert there.rows("SHOW TABLES LIKE 'kept%'") == []


def test_a_column_whose_name_has_braces_puts_rows_in_order(there: There) -> None:  # noqa: F811
    """And a null in it is refused by its name."""
    sink: dict[str, Any] = {"write": "upsert", "keys": ("k",), "sequence_by": ("a{b}",)}
    there.prepare("k string, a{b} long", **sink)
    there.write("k a{b}", ["x", 1], texts=("k",), **sink)
    with pytest.raises(Refused, match=r"column 'a\{b\}' is null"):
        there.write("k a{b}", ["y", None], texts=("k",), **sink)

    assert there.rows("SELECT * FROM kept") == [("x", 1)]
