"""A JVM that can't start: what it said itself is where the error says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
OPTION = "-XX:NoSuchOption=1"


def test_error_names_the_log_that_has_the_words_of_the_jvm(tmp_path: Path) -> None:
    """`onlyonce check` prints no line of Spark's while it runs. The JVM's last ones come with the error."""
    ended = subprocess.run(
        [sys.executable, "-c", "from onlyonce.cli import app; app()", "check", "shop"],
        env=os.environ
        | {
            "ONLYONCE_HOME": str(tmp_path),
            "ONLYONCE_PIPELINES": "tests/support/shop.py",
            "ONLYONCE_DATABASE_URL": "postgresql+psycopg2://u:p@127.0.0.1:1/none",
            "JDK_JAVA_OPTIONS": OPTION,
        },
        capture_output=True,
        text=True,
        check=False,
    )

    [log] = (tmp_path / "logs").glob("spark-*.log")
    assert ended.returncode == 75, ended.stderr
    assert f"log: {log}" in ended.stderr.splitlines()
    option = OPTION.partition("=")[0].removeprefix("-XX:")
    assert option in ended.stderr
    assert option in log.read_text()
