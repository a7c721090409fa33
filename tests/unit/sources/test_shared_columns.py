"""The values of partition columns, which a table's log has as strings, are what the conversion table says."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.core.errors import Refused
from onlyonce.sources import typed_files

HELD: list[tuple[str, str | None, Any]] = [
    ("integer", "7", 7), ("long", "-7", -7), ("string", "007", "007"), ("boolean", "true", True), ("double", "1.0E10", 1e10), ("date", "2026-03-01", date(2026, 3, 1)),
    ("decimal(12,2)", "1.5", Decimal("1.50")), ("timestamp", "2026-03-01T10:00:00.000000Z", datetime(2026, 3, 1, 10, tzinfo=UTC)), ("timestamp", "2026-03-01 10:00:00+02:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
    ("timestamp_ntz", "2026-03-01 10:00:00", datetime(2026, 3, 1, 10)), ("string", None, None), ("date", "", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), HELD)
def test_a_partition_value_is_read_by_the_table(kind: str, text: str | None, value: Any) -> None:
    shared = (("c", text, kind),)
    typed_files.check_shared("a table", shared)
    batch = typed_files.put_columns(pa.RecordBatch.from_pydict({"id": ["a", "b"]}), shared)
    assert batch.column("c").to_pylist() == [value, value]


@pytest.mark.parametrize(("kind", "text"), [
    ("integer", "007"), ("integer", " 7"), ("byte", "128"), ("double", "nan"), ("double", "3d"), ("boolean", "1"), ("date", "2026-02-29"), ("date", "20260301"),
    ("timestamp", "2026-03-01 10:00:00"), ("timestamp", "2026-03-01"), ("timestamp", "10:00:00Z"), ("decimal(4,1)", "1.25"),
])  # fmt: skip
def test_a_partition_value_of_another_form_is_refused(kind: str, text: str) -> None:
    """Arrow's cast takes 007 for 7; a time without a zone is another instant in each session's zone."""
    with pytest.raises(Refused, match="partition column c"):
        typed_files.check_shared("a table", [("c", text, kind)])
