"""The keys of the store reach whoever reads there by the environment, and nothing else shows them: not Spark's
settings, not its page."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from onlyonce.core.locations import location
from onlyonce.engine.options import options
from onlyonce.tables import stores
from tests.support.platform import JOB_TIMEOUT, ROOT, Platform
from tests.support.s3 import KEY, S3, SECRET

PAGE = """
import httpx
from onlyonce.engine import session
spark = session.start("looks at its page", "local[1]")
context = spark.sparkContext
spark.read.text(FILE).collect()
print(context.getConf().getAll())
print(httpx.get(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment", timeout=300).text)
"""


@pytest.fixture
def bucket(platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """A platform whose data is in a bucket."""
    made = versitygw.bucket()
    platform.give(monkeypatch, **versitygw.environment, ONLYONCE_DATA=f"{made}/lake", ONLYONCE_SPARK_UI="true")
    lines = location(f"{made}/lines")
    stores.of(lines).put(lines, b"a line\n")
    return made


def test_spark_is_told_no_key(bucket: str) -> None:
    told = str(options("local[2]", {}))
    assert "s3a.endpoint" in told
    assert SECRET not in told
    assert KEY not in told


@pytest.mark.spark
def test_sparks_page_shows_no_key_though_tasks_read_with_it(bucket: str, platform: Platform) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PAGE.replace("FILE", repr(f"{bucket}/lines"))],
        cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=JOB_TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "fs.s3a.endpoint" in done.stdout
    assert SECRET not in done.stdout + done.stderr
