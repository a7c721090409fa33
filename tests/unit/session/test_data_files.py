"""The one reader of Spark for files that are named."""

from __future__ import annotations

import re
from pathlib import Path

import onlyonce

OWN = re.compile(r"\.read(Stream)?\b(?!\(|\.format\(\"(delta|kafka|rate)\"\))")


def test_spark_reads_files_by_one_reader() -> None:
    """Spark's own reader takes a path for a pattern, unless it is the path of a Delta table.

    Kafka and the rate source have no paths.
    """
    home = Path(onlyonce.__file__).parent
    found = [
        f"{file.relative_to(home)}: {line.strip()}"
        for file in home.rglob("*.py")
        for line in file.read_text().splitlines()
        if re.search(r"(spark|session)\.read", line) and OWN.search(line)
    ]
    assert [one.partition(":")[0] for one in found] == ["engine/session.py"], found
