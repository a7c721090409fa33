"""Cases of sources that are no folder of complete files: a table, a log that grows, changes of a database.

Inputs and right results are data (README.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onlyonce.api.messages import PLACEHOLDER
from onlyonce.api.pipeline import DeltaSource, Files
from onlyonce.core import line_values
from tests.cases.test_cases import HERE, plain, reader
from tests.support import tables
from tests.support.shop import SHOP
from tests.unit.sources import test_growing

Records = list[dict[str, Any]]
NUMBER = re.compile('"lsn": ([0-9]+)')


def of_table(folder: Path, case: dict[str, Any], tmp_path: Path) -> tuple[Records, list[str]]:
    """Read a Delta table by its log."""
    pipeline = replace(SHOP, source=DeltaSource(path=str(folder / "input")), schema=case["schema"], aliases={})
    rows = tables.rows(pipeline, tables.take(pipeline)[0])
    kept = [
        {name: plain(row[name]) for name in pipeline.columns() if name != "at"} for row in rows if not row["oo_refused"]
    ]
    return kept, [str(row["oo_line"]) for row in rows if row["oo_refused"]]


def of_growing(folder: Path, case: dict[str, Any], tmp_path: Path) -> tuple[Records, list[str]]:
    """Read a log after each step: a new log is put into the inode of the old one."""
    log, ranges = tmp_path / "app.log", test_growing.Reader(tmp_path)
    for step in case["steps"]:
        content = "".join(f"{line}\n" for line in step.get("new", step.get("append"))).encode()
        if "new" in step and log.exists():
            test_growing._put_into_inode(log, content)
        else:
            test_growing.append(log, content)
        ranges.turn()
    assert ranges.refused == []
    return _read(case, [line.decode() for line in ranges.lines()], "csv", lambda line: line)


def of_changes(folder: Path, case: dict[str, Any], tmp_path: Path) -> tuple[Records, list[str]]:
    """Take envelopes of Debezium apart, and read the row of each."""
    take_apart = line_values.envelope_reader(("id", "notes"), PLACEHOLDER, keyed=False)
    kept: Records = []
    invalid: list[str] = []
    for message in (folder / "messages.jsonl").read_text("utf-8").splitlines():
        change = take_apart(message)
        if change.row is None:
            assert "placeholder" in str(change.reason)
            invalid += NUMBER.findall(message)
        else:
            [record] = _read(case, [change.row], "json", str)[0]
            kept.append(record | {"op": change.op})
    return kept, invalid


def _read(
    case: dict[str, Any], lines: list[str], layout: Any, shown: Callable[[str], str]
) -> tuple[Records, list[str]]:
    pipeline = replace(
        SHOP,
        source=Files(format=layout),
        schema=case["schema"],
        aliases={},
        record_id=(),
        event_time=case["schema"].split()[-2],
    )
    read = reader(pipeline)
    found = [(line, read(line).values) for line in lines]
    names = pipeline.columns()
    kept = [
        {name: plain(value) for name, value in zip(names, values, strict=True) if name != "at"}
        for _, values in found
        if values is not None
    ]
    return kept, [shown(line) for line, values in found if values is None]


READS = {"table": of_table, "growing": of_growing, "changes": of_changes}


def cases() -> list[Any]:
    """Return the cases of these sources."""
    found = [(path.parent, json.loads(path.read_text("utf-8"))) for path in sorted(HERE.glob("*/*/case.json"))]
    return [pytest.param(folder, case, id=str(folder.relative_to(HERE))) for folder, case in found if "reads" in case]


@pytest.mark.parametrize(("folder", "case"), cases())
def test_case_of_a_source_gives_the_right_result(folder: Path, case: dict[str, Any], tmp_path: Path) -> None:
    """Its records and its invalid ones."""
    kept, invalid = READS[case["reads"]](folder, case, tmp_path)
    assert sorted(kept, key=repr) == sorted(case["kept"], key=repr)
    assert sorted(invalid) == sorted(case["invalid"])
