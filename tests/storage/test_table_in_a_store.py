"""A Delta table as a source: the same records by the same places, wherever the table is."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from onlyonce.api.pipeline import DeltaSource
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url
from onlyonce.sources import delta_log
from onlyonce.tables import opening, stores
from tests.support.shop import SHOP
from tests.support.tables import SCHEMA, rows, sales, take


def append(at: Location, names: list[str]) -> None:
    """A version with these records, by the shop that they are of."""
    write_deltalake(
        str(at),
        pa.Table.from_pylist(sales(names), SCHEMA),
        mode="append",
        partition_by=["shop"],
        storage_options=stores.options_of_delta(at),
    )


def test_a_table_is_read_version_by_version_wherever_it_is(place: Location) -> None:
    """Each row once, by version, file and number; a compaction has nothing new; a file that is gone is refused by its
    name."""
    at = place / "sales table"
    pipeline = replace(SHOP, source=DeltaSource(path=str(at)), record_id=())
    append(at, ["a", "b", "c"])

    found, read = take(pipeline)

    assert {file.identity for file in found} == {f"0/{_below(file.path, at)}" for file in found}
    assert sorted((row["id"], row["shop"], row["oo_position"]) for row in rows(pipeline, found)) == [
        ("a", "a", 0),
        ("b", "b", 0),
        ("c", "a", 1),
    ]
    append(at, ["d"])
    opening.table(at).optimize.compact()
    later, read = take(pipeline, read)
    assert [row["id"] for row in rows(pipeline, later)] == ["d"]
    assert take(pipeline, read)[0] == []

    delta_log.check_table_there(pipeline, later[0])
    stores.of(at).delete(at / _below(later[0].path, at))
    with pytest.raises(Refused, match="which version 1 of the table has added, does not exist any more"):
        delta_log.check_table_there(pipeline, later[0])


def _below(path: str, at: Location) -> str:
    return path.removeprefix(f"{at}/")


@pytest.mark.parametrize("place", ["versitygw"], indirect=True)
def test_a_table_that_is_not_in_the_store_is_refused(place: Location) -> None:
    """By its URL; and one of a kind that there is not, when it is declared."""
    assert isinstance(place, Url)
    with pytest.raises(Refused, match=r"the table of shop, s3://.* does not exist"):
        take(replace(SHOP, source=DeltaSource(path=str(place / "none")), record_id=()))
    with pytest.raises(Refused, match="DeltaSource: path is"):
        DeltaSource(path="hdfs://n:9000/x")
