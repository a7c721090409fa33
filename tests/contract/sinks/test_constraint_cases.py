"""The reported cases `tests/cases/constraints`: rows that a team's PostgreSQL table rejects are refused at once, with
the cause."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import Refused
from tests.contract.conftest import Log
from tests.contract.task import Task

CASES = Path(__file__).parents[2] / "cases/constraints"
FOLDERS = sorted(path.parent for path in CASES.glob("*/table.sql"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_rows_that_a_constraint_rejects_are_refused(log: Log, folder: Path) -> None:
    """A constraint, a domain, a foreign key that is checked at COMMIT and a trigger; the row beside them is not written
    either."""
    driver: Driver = log.start("shop", "per_shop")
    log.rows("CREATE SCHEMA results")
    log.rows((folder / "table.sql").read_text())
    records = [json.loads(line) for line in (folder / "input/r.jsonl").read_text().splitlines()]

    with pytest.raises(Refused, match=(folder / "refused.txt").read_text().strip()) as refused:
        Task(log, driver, log.database).run(pa.RecordBatch.from_pylist(records))

    assert refused.value.exit_code == 64
    assert log.multiset("SELECT id FROM results.shop") == Counter()
    assert log.rows("SELECT * FROM onlyonce_private.units") == []
