"""Commits that replace rows of a Delta table, wherever it lies: no change is lost, none is made twice, and no row
beside the changed ones goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from onlyonce.core.locations import Location
from onlyonce.tables import arrow_files, opening, own_tables, rewrite, table_files
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.rewrite import Change
from onlyonce.tables.table_files import Bounds, Held

WRITERS, COMMITS = 3, 6
SCHEMA = StructType([StructField("key", StringType()), StructField("n", LongType())]).json()
FILES = count()


@dataclass(frozen=True)
class Add:
    """Adds one to the number of a key, or makes it: what it writes depends on what is there.

    `at`: called at each step that another may come between.
    """

    path: Location
    key: str
    at: Callable[[str], None] = lambda step: None

    def files(self, table: DeltaTable) -> list[Held]:
        """See `changing.Plan`."""
        self.at("look")
        return table_files.holding(table, {"key": Bounds(self.key, self.key)})

    def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
        """See `changing.Plan`."""
        none = pa.table({"key": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
        rows = pa.concat_tables(
            [none, *(arrow_files.rows(self.path / held.path) for held in files)], promote_options="permissive"
        )
        if self.key not in rows["key"].to_pylist():
            rows = pa.concat_tables([rows, pa.table({"key": [self.key], "n": [0]})], promote_options="permissive")
        here = pc.equal(rows["key"], self.key)
        new = rows.set_column(1, "n", pc.add(rows["n"], here.cast(pa.int64())))
        file = folder / f"part-{next(FILES)}.parquet"
        arrow_files.write(file, new)
        self.at("written")
        return Change(files, [file])


def commit(who: str, number: int) -> tables_commit.Commit:
    """The commit of a writer by its number."""
    return tables_commit.Commit(who, number, f"{who}/{number}", 1, "")


def made(place: Location) -> None:
    """One file with a key for all, one with keys of others."""
    opening.make(place, SCHEMA, [], {})
    for number, keys in enumerate((["shared", "stays"], ["z0", "z1", "z2"])):
        own_tables.append_rows([[{"key": key, "n": 0} for key in keys]], place, commit("made", number))


def there(place: Location) -> Counter[tuple[str, int]]:
    """The rows of the table."""
    rows = opening.table(place).to_pyarrow_table()
    return Counter(zip(rows["key"].to_pylist(), rows["n"].to_pylist(), strict=True))


def test_of_writers_at_once_each_change_is_made_once(place: Location) -> None:
    """Each adds to a key that all change, and to one of its own, while another appends."""
    made(place)

    def add(who: int) -> None:
        for number in range(COMMITS):
            rewrite.change_rows(place, commit(f"w{who}", 2 * number), Add(place, "shared"))
            rewrite.change_rows(place, commit(f"w{who}", 2 * number + 1), Add(place, f"z{who}"))

    def append(_: int) -> None:
        for number in range(COMMITS):
            own_tables.append_rows([[{"key": f"new{number}", "n": 0}]], place, commit("appends", number))

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        list(pool.map(lambda who: (add if who < WRITERS else append)(who), range(WRITERS + 1)))
    changed = [("shared", WRITERS * COMMITS), *((f"z{who}", COMMITS) for who in range(WRITERS))]
    assert there(place) == Counter([("stays", 0), *changed, *((f"new{number}", 0) for number in range(COMMITS))])


def test_of_drivers_at_once_with_one_transaction_one_makes_the_change(place: Location) -> None:
    """A driver and its zombies: a change that is made twice adds two."""
    made(place)

    def add(number: int) -> int | None:
        return rewrite.change_rows(place, commit("w", number), Add(place, "shared"))

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(COMMITS):
            assert len({*pool.map(add, [number] * WRITERS)}) == 1
    assert there(place) == Counter([("shared", COMMITS), ("stays", 0), *((f"z{who}", 0) for who in range(3))])


STEPS = ("look", "written", "commit")


@contextmanager
def between(step: str, come: Callable[[], None]) -> Iterator[Callable[[str], None]]:
    """Somebody else's commits come at a step of the first try."""
    waiting = [come]

    def at(name: str) -> None:
        if name == step and waiting:
            waiting.pop()()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "passing", lambda _: at("commit"))
        yield at


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", ["the twin", "the same file", "another file and the twin", "the same new key"])
def test_what_comes_while_a_writer_stands_still(place: Location, step: str, what: str) -> None:
    """Between any two of its requests, and it goes on: the twin's change is its own, others' stand beside it."""
    made(place)
    wanted = Counter([("shared", 1), ("stays", 0), ("z0", 0), ("z1", 0), ("z2", 0)])

    def come() -> None:
        nonlocal wanted
        if what == "the same file":
            rewrite.change_rows(place, commit("other", 0), Add(place, "stays"))
            wanted = wanted - Counter([("stays", 0)]) + Counter([("stays", 1)])
        if "another file" in what:
            rewrite.change_rows(place, commit("other", 0), Add(place, "z1"))
            wanted = wanted - Counter([("z1", 0)]) + Counter([("z1", 1)])
        if "the twin" in what:
            rewrite.change_rows(place, commit("w", 0), Add(place, "shared"))

        if what == "the same new key":
            rewrite.change_rows(place, commit("other", 0), Add(place, "new"))

    key = "new" if "new" in what else "shared"
    if key == "new":
        wanted = wanted - Counter([("shared", 1)]) + Counter([("shared", 0), ("new", 2)])
    with between(step, lambda: _alone(come)) as at:
        version = rewrite.change_rows(place, commit("w", 0), Add(place, key, at))
    assert there(place) == wanted
    assert rewrite.change_rows(place, commit("w", 0), Add(place, key)) == version
    assert there(place) == wanted


def _alone(come: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "passing", lambda _: None)
        come()


def test_what_was_written_is_not_written_again_where_others_have_left_its_files(place: Location) -> None:
    """A lost PUT costs a look; the rows are read and written again only where a file that may hold them is another
    one."""
    made(place)
    steps: list[str] = []

    def another() -> None:
        rewrite.change_rows(place, commit("other", 0), Add(place, "z1"))

    with between("commit", lambda: _alone(another)):
        rewrite.change_rows(place, commit("w", 0), Add(place, "shared", steps.append))
    assert steps == ["look", "written", "look"]


def test_a_change_of_nothing_has_its_transaction(place: Location) -> None:
    """So a replay finds it, as a batch whose rows are all older than those that are there."""
    made(place)

    class Nothing(Add):
        def write(self, table: DeltaTable, files: Sequence[Held], folder: Location) -> Change:
            return Change([], [])

    version = rewrite.change_rows(place, commit("w", 0), Nothing(place, "shared"))
    assert opening.table(place).transaction_version("w") == 0
    assert rewrite.change_rows(place, commit("w", 0), Add(place, "shared")) == version


def test_a_table_of_deleted_keys_is_known_as_the_platforms_wherever_it_lies(place: Location) -> None:
    """Its property is none of Delta's own."""
    at = table_files.beside(place)
    opening.make(at, SCHEMA, [], table_files.PROPERTIES)
    assert table_files.is_ours(at)
