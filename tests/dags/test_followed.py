"""DAGs of pipelines that read the output of another one: they run when that one has written, without a time of their
own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, AssetAny

from onlyonce.airflow import dags, log
from onlyonce.settings import ROOT

DECLARED = ROOT / "tests/support/table_shop.py"


def made(**options: Any) -> dict[str, DAG]:
    """The DAGs of both pipelines."""
    return dags(DECLARED, housekeeping=(), **options)


def test_the_follower_runs_after_the_asset_of_the_table_that_it_reads() -> None:
    """The asset is the one that the first pipeline's run tells; the first pipeline itself has its schedule."""
    found = made(schedule="0 * * * *")

    assert found["hourly_stream"].schedule == AssetAny(log.asset("shop", "per_shop"))
    assert not isinstance(found["shop_stream"].schedule, AssetAny)
    [told] = found["shop_stream"].tasks
    assert told.outlets == [log.alias("shop")]


@pytest.mark.parametrize("options", [{"schedule": None}, {"schedule": "none"}, {}])
def test_by_hand_is_by_hand(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a DAG file or the setting says that nothing runs by itself, neither does the follower."""
    monkeypatch.setenv("ONLYONCE_SCHEDULE", "*/5 * * * *" if options else "none")
    assert made(**options)["hourly_stream"].schedule is None


def test_a_dag_file_with_both_parses_and_they_are_linked(tmp_path: Path) -> None:
    """As Airflow reads it."""
    (tmp_path / "both.py").write_text(
        f"from onlyonce.airflow import dags\nglobals().update(dags({str(DECLARED)!r}, housekeeping=()))\n"
    )
    bag = DagBag(str(tmp_path))

    assert bag.import_errors == {}
    assert bag.dags["hourly_stream"].schedule == AssetAny(log.asset("shop", "per_shop"))
