"""Cases that users of such systems have reported: each folder has its inputs and the right result as data (README.md)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onlyonce.declare.pipeline import Files, Pipeline
from onlyonce.model.errors import Refused
from onlyonce.sources import discovery
from onlyonce.sources.files import folders, source_files
from onlyonce.sources.files.listing import new_files
from tests.support.arrivals import records_of
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*/*/case.json"))
NOW = datetime(2026, 6, 1, tzinfo=UTC)
ID = re.compile("[a-z]+[0-9]+")
"""How the ids of the invalid records of a case are found in what is kept of them."""


def named(path: Path) -> str:
    """Return the name of a case."""
    return str(path.parent.relative_to(HERE))


@pytest.mark.parametrize("path", CASES, ids=named)
def test_case_gives_the_right_result(spark: SparkSession, path: Path, request: pytest.FixtureRequest) -> None:
    """Its records, its invalid ones, the folders that are skipped, or why the run is refused."""
    case = json.loads(path.read_text("utf-8"))
    if "missing" in case:
        request.applymarker(pytest.mark.xfail(strict=True, reason=case["missing"]))
    pipeline = replace(SHOP, source=Files(**case["source"]), schema=case["schema"], aliases=case.get("aliases", {}))
    if "refused" in case:
        with pytest.raises(Refused) as refused:
            taken_in(spark, pipeline, path.parent / "input")
        assert case["refused"] in refused.value.hint
        return
    kept, invalid, skipped = taken_in(spark, pipeline, path.parent / "input")
    assert kept == sorted(case["kept"], key=lambda row: str(row["id"]))
    assert sorted(found[0] if (found := ID.findall(raw)) else raw for raw in invalid) == sorted(case["invalid"])
    assert skipped == case.get("skipped", [])


def taken_in(spark: SparkSession, pipeline: Pipeline, inbox: Path) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return what a run makes of an inbox: the kept rows, what is kept of the invalid ones, and the folders that it skips."""
    below = folders.of(pipeline)
    files = list(new_files(inbox, {}, *discovery.first_line_and_counter(pipeline), folders=below))
    lines, count = source_files.lines(spark, pipeline, files, source_files.unreadable(pipeline, files))
    rows = records_of(spark, lines, pipeline, NOW)
    assert len(rows) == count
    names = [name for name in pipeline.columns() if name != pipeline.event_time]
    kept = [{name: plain(row[name]) for name in names} for row in rows if not row.oo_reason]
    skipped = sorted(str(Path(one).relative_to(inbox)) for one in below.skipped)
    return sorted(kept, key=lambda row: str(row["id"])), [row.oo_raw for row in rows if row.oo_reason], skipped


def plain(value: Any) -> Any:
    """Return a value as a case has it: times in UTC, and decimals, as strings."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, date | Decimal) else value
