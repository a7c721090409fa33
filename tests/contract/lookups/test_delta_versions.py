"""A version of a Delta table that the log names is there, or is refused with what became of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce import Delta, Lookup, Output, settings
from onlyonce.core.errors import Refused
from onlyonce.lookups import delta_versions, tables


def write(path: Path, *shops: str) -> None:
    """The table has these rows now."""
    write_deltalake(str(path), pa.table({"shop": list(shops)}), mode="overwrite")


def vacuumed(path: Path) -> None:
    """Files that only old versions have are removed."""
    DeltaTable(str(path)).vacuum(0, enforce_retention_duration=False, dry_run=False)


def made_anew(path: Path) -> None:
    """Another table at the same path, with as many versions."""
    shutil.rmtree(path)
    write(path, "a")
    write(path, "b")


def forgotten(path: Path) -> None:
    """The log begins at a later version."""
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{0:020}.json").unlink()


@pytest.mark.parametrize(
    ("lose", "says"),
    [(vacuumed, "removed \\(VACUUM\\)"), (made_anew, "made again"), (forgotten, "does not have it any more")],
)
def test_a_version_is_there_until_it_is_lost_and_then_it_is_said_how(
    tmp_path: Path, lose: Callable[[Path], None], says: str
) -> None:
    """Before that it is not refused, and the newest one is as the table says."""
    path = tmp_path / "cities"
    cities = Lookup(name="cities", table=Delta(path=str(path)), keys="shop")
    with pytest.raises(Refused, match="no Delta table is at"):
        delta_versions.newest(cities)
    write(path, "a")
    first = delta_versions.newest(cities)
    write(path, "b")
    assert (first["version"], delta_versions.newest(cities)["version"]) == (0, 1)
    delta_versions.refuse_gone(cities, first)

    lose(path)

    with pytest.raises(Refused, match=f"version 0 of the table is gone: .*{says}"):
        delta_versions.refuse_gone(cities, first)


@pytest.mark.parametrize("declared", ["customers", "ABSOLUTE/customers"])
def test_a_missing_table_is_refused_with_its_output_and_the_tables_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str
) -> None:
    """And with what makes one; the path is below the tables of the home unless it is absolute."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    folder = settings.tables_dir()
    path = declared.replace("ABSOLUTE", str(folder))
    there = f"{path.removesuffix('customers')}customer"
    customers = {"customers": Lookup(name="customers", table=Delta(path=path), keys="shop")}
    output = Output(name="each", transform="m:f", sink=Delta())

    for hint in ("make the table first: ", f"did you mean {there!r}? choose one of: {there}. Or make it: "):
        with pytest.raises(Refused) as refused:
            tables.newest(customers, output)
        what = f": output each: lookup customers: no Delta table is at {folder}/customers"
        assert refused.value.what.endswith(what)
        assert refused.value.hint.startswith(
            f"{hint}a pipeline with sink=Delta(path={path!r}) does, or Spark: df.write.format('delta').save("
            f"'{folder}/customers')"
        )
        assert (f"A relative path is below {folder}" in refused.value.hint) == (declared == "customers")
        write(folder / "customer", "a")
