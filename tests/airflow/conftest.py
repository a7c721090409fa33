"""One real platform for all tests of this folder: its start is what takes the time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.local import platform
from onlyonce.local.airflow_api import AirflowApi
from onlyonce.local.feed import feed_files
from tests.support.platform import free_port

RECORDS = 2_000


# Of the package, not of the session: the tests that come after these want two quiet cores and their own environment.
@pytest.fixture(scope="package")
def home() -> Iterator[Path]:
    """The folder of a platform that runs, with input in its inbox; nothing is left of it at the end."""
    # Not pytest's own folder, which only its owner may enter: as root the server is another account.
    folder = Path(tempfile.mkdtemp(prefix="onlyonce-airflow-")).resolve()
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONLYONCE_HOME", str(folder / "home"))
        patch.setenv("ONLYONCE_PG_PORT", str(free_port()))
        patch.setenv("ONLYONCE_AIRFLOW_PORT", str(free_port()))
        patch.setenv("ONLYONCE_MASTER", "local[2]")
        patch.setenv("ONLYONCE_SCHEDULE", "none")
        for name in ("ONLYONCE_DATABASE_URL", "ONLYONCE_READER_URL", "ONLYONCE_PIPELINES", "AIRFLOW_HOME"):
            patch.delenv(name, raising=False)
        try:
            feed_files("user_counts", settings.inbox("user_counts"), records=RECORDS, files=6)
            platform.up()
            yield folder / "home"
        finally:
            platform.down()
            if "ONLYONCE_KEEP" not in os.environ:
                shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="package")
def api(home: Path) -> Iterator[AirflowApi]:
    """A session with its Airflow, which has parsed all DAG files."""
    with AirflowApi() as session:
        session._client.timeout = 120  # three JVMs on two cores leave the API little
        for dag in ("user_counts_stream", "flights_stream", "flights_backfill", "onlyonce_audit"):
            session.wait_for_dag(dag)
        yield session
