"""`onlyonce crashtest` where the data of the platform is in S3: each kill holds, and nothing is left of it in the
store."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from onlyonce.core.locations import location
from onlyonce.tables import stores
from tests.fault.test_crashtest import COMMAND
from tests.support import shop_oracle
from tests.support.platform import JOB_TIMEOUT, ROOT
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]
POINTS = ["receive-after-delta", "delta-after-write"]


def test_kills_hold_and_the_prefix_of_the_platform_is_as_it_was(
    tmp_path: Path, versitygw: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    root = location(f"{versitygw.bucket()}/lake")
    kept = root / "onlyonce.json"
    stores.of(kept).put(kept, b'{"platform": "of the user"}')
    for number, records in enumerate(shop_oracle.sales(60, 2)):
        (tmp_path / f"sales-{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    given = {
        "ONLYONCE_HOME": "/nowhere",
        "ONLYONCE_DATA": str(root),
        "ONLYONCE_PIPELINES": str(ROOT / "tests/support/stored_shop.py"),
    }

    done = subprocess.run(
        [*COMMAND, "shop", "--input", str(tmp_path), "--points", ",".join(POINTS), "--json"],
        cwd=ROOT, env=os.environ | given, capture_output=True, text=True, timeout=4 * JOB_TIMEOUT,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert {kill["point"]: kill["verdict"] for kill in report["tables"]["kills"]} == dict.fromkeys(POINTS, "held")
    assert report["facts"]["rows compared"] > 100
    assert [entry.at for entry in stores.of(root).entries(root)] == [kept]
