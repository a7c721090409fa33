"""Commits to a Delta table wherever it lies: nothing that was acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from onlyonce.core.locations import Location, location
from onlyonce.tables import arrow_files, opening, own_tables
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.commit import Appended
from tests.support.s3 import S3

WRITERS, COMMITS, ILL = 3, 12, 5
COMMIT = 11
"""Requests of a commit of one file: three read the log on, one asks whether it begins where it did, two are the file's,
and five are delta-rs's own."""
SCHEMA = StructType([StructField("n", LongType())]).json()


def test_of_drivers_at_once_each_acknowledged_commit_is_there(place: Location) -> None:
    """Each with a transaction of its own, and a row that nobody else has."""
    opening.make(place, SCHEMA, [], tables_commit.KEEP_ALL)

    def commits(who: int) -> list[int]:
        rows = [who * COMMITS + number for number in range(COMMITS)]
        for number, row in enumerate(rows):
            commit = tables_commit.Commit(f"app{who}", number, f"app{who}/{number}", 1, "")
            own_tables.append_rows([[{"n": row}]], place, commit)
        return rows

    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = [row for rows in pool.map(commits, range(WRITERS)) for row in rows]
    assert there(place) == Counter(acknowledged)


def test_of_drivers_at_once_with_one_transaction_one_commits_and_all_are_told_so(place: Location) -> None:
    """A driver and its zombie, with the same rows."""
    opening.make(place, SCHEMA, [], tables_commit.KEEP_ALL)

    def commit(number: int) -> int:
        return own_tables.append_rows(
            [[{"n": number}]], place, tables_commit.Commit("app", number, f"app/{number}", 1, "")
        )

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(COMMITS):
            assert len({*pool.map(commit, [number] * WRITERS)}) == 1
    assert there(place) == Counter(range(COMMITS))


@pytest.mark.parametrize(("kind", "method"), [("slow", ""), ("cut", "PUT")])
def test_a_commit_to_a_store_that_is_ill_is_there_once(store: S3, kind: str, method: str) -> None:
    """Also where it was carried out and its answer was cut off, so that its writer is told of a conflict with
    itself."""
    place = location(f"{store.bucket()}/table")
    opening.make(place, SCHEMA, [], tables_commit.KEEP_ALL)
    store.ill(kind, every=4, method=method)
    for number in range(ILL):
        own_tables.append_rows([[{"n": number}]], place, tables_commit.Commit("app", number, f"app/{number}", 1, ""))
    store.well()
    assert there(place) == Counter(range(ILL))


def test_a_run_that_appends_asks_as_much_as_before_and_sees_what_others_have_committed(store: S3) -> None:
    """A zombie with the next transaction among them, and appends of others between two looks."""
    place = location(f"{store.bucket()}/table")
    opening.make(place, SCHEMA, [], tables_commit.KEEP_ALL)
    ours, asked = Appended(place), []
    for number in range(COMMITS):
        store.well()
        append(ours.look(), number, number)
        asked.append(sum(store.counts.values()))
    assert asked[-1] <= asked[2]
    assert median(asked) <= COMMIT

    own_tables.append_rows(
        [[{"n": COMMITS}]], place, tables_commit.Commit("app", COMMITS, f"app/{COMMITS}", 1, "")
    )  # the zombie
    own_tables.append_rows([[{"n": -1}]], place, tables_commit.Commit("others", 1, "others/1", 1, ""))
    assert append(ours, COMMITS, COMMITS) == append(ours.look(), COMMITS, COMMITS) == COMMITS + 1
    append(ours.look(), COMMITS + 1, COMMITS + 1)
    assert there(place) == Counter([-1, *range(COMMITS + 2)])


def append(to: Appended, number: int, row: int) -> int:
    """A commit of one row by a run that appends."""

    def write(folder: Location) -> list[Location]:
        arrow_files.write(folder / "part-00000.parquet", pa.table({"n": [row]}))
        return [folder / "part-00000.parquet"]

    return own_tables.exactly(
        to.at, own_tables.append(write, to, tables_commit.Commit("app", number, f"app/{number}", 1, ""))
    )


def there(place: Location) -> Counter[int]:
    """The rows of the table."""
    return Counter(opening.table(place).to_pyarrow_table()["n"].to_pylist())
