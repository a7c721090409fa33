"""A whole run whose data is in GCS, with a client of Spark's that somebody has brought.

Killed in its middle, it ends as the batch computation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onlyonce import settings
from tests.storage.test_run_on_s3 import assert_equals_the_batch, put_all
from tests.support import shop_oracle
from tests.support.gcs import Gcs
from tests.support.needed import missing
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.whole]

JARS = Path(sys.prefix) / "jars-gs"
CLIENT = {
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem", "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    "fs.gs.block.size": "67108864", "fs.gs.rewrite.max.chunk.size": "536870912", "fs.gs.outputstream.buffer.size": "8388608",
    "fs.gs.inputstream.inplace.seek.limit": "8388608", "fs.gs.inputstream.min.range.request.size": "2097152",
}  # fmt: skip
"""As docs/how-to/object-store.md has them: Hadoop 3.5 sets what this client would set otherwise, in a form that it does
not know."""


def test_a_kill_does_not_show_in_what_is_in_the_store(
    platform: Platform, fake_gcs: Gcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events, manifest, checkpoints and tables are there."""
    jar = next(JARS.glob("gcs-connector-*.jar"), None)
    if jar is None:
        missing("Spark has no client of GCS here: make .venv/.made/gcs")
    said = {f"spark.hadoop.{key}": value for key, value in CLIENT.items()} | {
        "spark.driver.extraClassPath": str(jar), "spark.executor.extraClassPath": str(jar),
        "spark.hadoop.fs.gs.storage.root.url": f"{fake_gcs.url}/", "spark.hadoop.fs.gs.project.id": "tests",
        "spark.hadoop.fs.gs.auth.type": "UNAUTHENTICATED", "spark.hadoop.fs.gs.auth.null.enable": "true",
        "spark.hadoop.fs.gs.auth.service.account.enable": "false",
    }  # fmt: skip
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in said.items()))
    own = {
        "ONLYONCE_PIPELINES": str(settings.ROOT / "tests" / "support" / "stored_shop.py"),
        "STORED_SHOP_EACH": f"{fake_gcs.bucket()}/each",
    }
    platform.give(
        monkeypatch,
        **fake_gcs.environment,
        SPARK_CONF_DIR=str(tmp_path),
        ONLYONCE_DATA=f"{fake_gcs.bucket()}/lake",
        **own,
    )
    files = shop_oracle.sales(100, 2)
    put_all(platform, files)
    code, output = platform.run_killed("receive-after-delta", "shop", "--close", nth=2)
    assert code < 0, output
    code, output = platform.run_whole("shop", "--close")
    assert code == 0, output
    assert_equals_the_batch(files)
