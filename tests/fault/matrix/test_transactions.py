"""Delta's transactions, on real tables without a JVM: what is skipped is told, what is there is not written twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from onlyonce.core.errors import InvariantBroken
from onlyonce.sinks.delta import sink_delta
from onlyonce.tables import commit
from tests.fault.matrix.frames import Frame, make, schema_of

COLUMN = schema_of("n long")


def put(path: Path, app_id: str, version: int, *numbers: int, content: str = "") -> int | None:
    """Append numbers under a transaction, by the product's function."""
    frame: Any = Frame(lambda: [{"n": n} for n in numbers], COLUMN)
    return sink_delta.append_rows(
        frame, path, commit.Commit(app_id, version, f"{app_id}/{version}", 1, content or str(numbers))
    )


def there(path: Path) -> Counter[int]:
    """What the table holds."""
    return Counter(DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """An empty table."""
    make(tmp_path / "table", COLUMN, None, [], None)
    return tmp_path / "table"


def test_a_commit_that_is_there_is_not_written_again(table: Path) -> None:
    """It is found, with the version that holds it, also behind later ones."""
    versions = [put(table, "a", 0, 1, 2), put(table, "a", 1, 3), put(table, "a", 0, 1, 2)]

    assert versions == [1, 2, 1]
    assert there(table) == Counter([1, 2, 3])


def test_a_write_that_delta_skips_is_told(table: Path) -> None:
    """At or below the highest version of its app id Delta drops a write without a word; it must not pass for done."""
    put(table, "a", 5, 1)
    for version, numbers in ((3, (2,)), (5, (3,))):
        with pytest.raises(InvariantBroken, match="should hold"):
            put(table, "a", version, *numbers)

    assert there(table) == Counter([1])


def test_app_ids_do_not_touch_each_other(table: Path) -> None:
    """Each has versions of its own."""
    put(table, "a", 7, 1)
    put(table, "b", 0, 2)

    assert there(table) == Counter([1, 2])
