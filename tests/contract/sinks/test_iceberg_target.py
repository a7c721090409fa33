"""An Iceberg table as the target of an output: claimed in the log, missed when it is gone, dropped with its files.

On the real PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Iceberg
from onlyonce.context import RunContext
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.operate import drop
from onlyonce.sinks import targets
from onlyonce.sinks.iceberg import iceberg_catalogs
from tests.contract.conformance_iceberg import CATALOG, configured
from tests.contract.conftest import Log
from tests.contract.sinks.test_targets import pipeline

SINK = Iceberg(table="sold.all", catalog=CATALOG)
PLACE = Place(f"iceberg:{CATALOG}:sold.all")


@pytest.fixture
def here(shared: Log) -> Iterator[Log]:
    """A platform with a catalog in its database."""
    shared.rows("TRUNCATE onlyonce_private.targets")
    with configured(shared, settings.home()):
        yield shared
        iceberg_catalogs.drop(PLACE)


def claim(log: Log, name: str, sink: Iceberg = SINK) -> RunContext:
    """What a run does before its output's table is made, and the making."""
    declared, no_session = pipeline(name, sink), Any
    context = RunContext(no_session, declared, name, "run", log.database)  # type: ignore[arg-type]
    with targets.claimed(context, declared.outputs[0]), iceberg_catalogs.open_catalog(CATALOG) as found:
        found.create_namespace_if_not_exists("sold")
        found.create_table_if_not_exists("sold.all", pa.schema([("n", pa.int64())]))
    return context


def test_a_table_that_went_is_missed_and_one_of_another_pipeline_is_refused(here: Log) -> None:
    """It is not made again without a word, neither by the platform nor by another program; capitals in its catalog's
    name make no other target."""
    claim(here, "mill")
    with pytest.raises(Refused, match="belongs to mill/all"):
        claim(here, "shop", Iceberg(table="sold.all", catalog=CATALOG.upper()))
    iceberg_catalogs.drop(PLACE)
    with pytest.raises(Refused, match=r"sold\.all is gone"):
        claim(here, "mill")
    with iceberg_catalogs.open_catalog(CATALOG) as found:
        found.create_table("sold.all", pa.schema([("n", pa.int64())]))
    with pytest.raises(Refused, match=r"sold\.all is another table than the one that the output wrote to"):
        claim(here, "mill")


def test_a_drop_takes_the_table_out_of_its_catalog_only_when_it_is_asked_for_tables(
    here: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It says so before."""
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))
    monkeypatch.setattr(declarations, "transform", lambda _: claim)
    here.start("press", "all")
    claim(here, "press").kept_declaration("all")

    told = drop.main(["press", "--yes"])
    assert {"what": "Iceberg table", "where": f"sold.all ({CATALOG})"} in told.tables["stays"]
    assert iceberg_catalogs.of_target(PLACE)
    drop.main(["press", "--tables", "--yes"])
    assert not iceberg_catalogs.of_target(PLACE)
