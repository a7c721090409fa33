"""At home in an Airflow that is already there: plain Airflow, the built wheel, three lines, a project of a team's
own."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from onlyonce.core.errors import Retryable
from onlyonce.database.migrate import migrate
from onlyonce.local import processes
from onlyonce.local.airflow_api import AirflowApi
from tests.airflow import installed
from tests.support.platform import Server

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

REQUIREMENTS = tuple(os.environ.get("ONLYONCE_TRIED_VERSIONS", "").split())
"""Other versions than the locked ones, as `pip` takes them: for `make test-versions`, and by hand."""
LISTED = """
import json, sys
from airflow.configuration import conf
sys.path.append(conf.get("core", "dags_folder"))  # as Airflow's own processes have it
from airflow.dag_processing.dagbag import DagBag
from airflow import plugins_manager
from airflow.providers_manager import ProvidersManager
import onlyonce
bag = DagBag()
plugins_manager.ensure_plugins_loaded() if hasattr(plugins_manager, "ensure_plugins_loaded") else plugins_manager._get_plugins()
plugins = plugins_manager._get_plugins()[0] if hasattr(plugins_manager, "_get_plugins") else plugins_manager.plugins
print(json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors, "package": onlyonce.__file__,
                  "provider": "onlyonce-pipelines" in ProvidersManager().providers, "plugins": [p.name for p in plugins]}))
"""
IDS = {
    "sales_stream",
    "sales_backfill",
    "onlyonce_audit",
    "onlyonce_catalog_gc",
    "onlyonce_finalize_files",
    "onlyonce_compact_tables",
    "onlyonce_ask_sources",
}
SALES = [{"sale": n, "shop": f"s{n % 3}", "at": f"2026-03-01T{n // 10:02d}:30:00Z", "cents": n} for n in range(60)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Everything of it; nothing is left at the end."""
    made = Path(tempfile.mkdtemp(prefix="onlyonce-installed-")).resolve()
    yield made
    if "ONLYONCE_KEEP" not in os.environ:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def python(folder: Path) -> Path:
    """The Python of the clean environment."""
    installed.team(folder)
    return installed.make(folder, *REQUIREMENTS)


@pytest.fixture(scope="module")
def environment(folder: Path, python: Path, server: Server) -> Iterator[dict[str, str]]:
    """Of a deployment whose platform's database is an Airflow connection."""
    name = server.new_database()
    migrate(server.url("writer", name))
    yield installed.environment(folder, python, server.url("writer", name))
    server.drop(name)


def test_a_clean_environment_has_the_dags_the_provider_and_the_page(
    folder: Path, python: Path, environment: dict[str, str]
) -> None:
    """By the wheel's entry points and the three lines; the package is the installed one."""
    installed.asked(python, environment, "-m", "airflow", "db", "migrate", cwd=folder)
    found = json.loads(installed.asked(python, environment, "-c", LISTED, cwd=folder).splitlines()[-1])

    assert found["errors"] == {}
    assert set(found["dags"]) == IDS
    assert found["provider"]
    assert found["plugins"].count("onlyonce") == 1
    assert found["package"].startswith(str(folder / "venv"))


@pytest.fixture(scope="module")
def api(folder: Path, python: Path, environment: dict[str, str]) -> Iterator[AirflowApi]:
    """That Airflow at work."""
    with installed.running(folder, python, environment) as session:

        def there() -> bool:
            try:
                return {dag["dag_id"] for dag in session.dags()} == IDS
            except Retryable:
                return False

        processes.wait_until(there, 240, "the DAGs")
        yield session


@pytest.mark.slow
def test_a_run_succeeds_the_page_shows_it_and_a_backfill_works(api: AirflowApi, folder: Path) -> None:
    """Through the API, as the UI's own dialogs do it."""
    inbox = folder / "home" / "inbox" / "sales"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text("".join(json.dumps(sale) + "\n" for sale in SALES))
    run = api.trigger("sales_stream", {"close": True})
    assert api.wait_for_run("sales_stream", run, 600) == "success", api.task_log("sales_stream", run, "run")[-4000:]
    assert kept(folder) == {("s0", 20), ("s1", 20), ("s2", 20)}

    tab = api._send("GET", "/exactly-once/runs", params={"dag_id": "sales_stream", "run_id": run}).text
    assert 'data-sink="per_shop"' in tab
    assert 'data-pipeline="sales"' in api._send("GET", "/exactly-once/").text

    day = "2026-03-01T00:00:00Z"
    api._call(
        "POST", "backfills", json={"dag_id": "sales_backfill", "from_date": day, "to_date": day, "max_active_runs": 1}
    )
    processes.wait_until(lambda: bool(runs(api)), 120, "the backfill's run")
    [made] = runs(api)
    log = lambda: api.task_log("sales_backfill", made["dag_run_id"], "backfill")[-4000:]  # noqa: E731
    assert api.wait_for_run("sales_backfill", made["dag_run_id"], 600) == "success", log()
    assert kept(folder) == {("s0", 20), ("s1", 20), ("s2", 20)}
    tab = api._send("GET", "/exactly-once/runs", params={"dag_id": "sales_backfill", "run_id": made["dag_run_id"]}).text
    assert 'data-sink="per_shop"' in tab


def runs(api: AirflowApi) -> list[dict[str, Any]]:
    """Those of the backfill's DAG."""
    return list(api._call("GET", "dags/sales_backfill/dagRuns")["dag_runs"])


def kept(folder: Path) -> set[tuple[str, int]]:
    """How many sales the output's table has of each shop."""
    table = DeltaTable(str(folder / "home" / "tables" / "sales" / "per_shop")).to_pandas()
    return set(table.groupby("shop")["sales"].sum().items())
