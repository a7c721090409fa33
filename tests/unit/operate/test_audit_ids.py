"""The audit's look at a sample of rows: the id of each is the one that its columns give, of whichever source it
came."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from onlyonce.operate import audit
from onlyonce.sources import record_id
from tests.support import two_sources


@pytest.mark.parametrize("space", ["by_source", "shared"])
def test_a_row_of_any_source_has_an_id_of_its_columns_and_another_id_is_found(space: str) -> None:
    """With an id space for each source as with one for all."""
    pipeline = two_sources.pipeline(id_space=space)
    ids = [
        record_id.of_values(pipeline, {"id": "a"}, name if space == "by_source" else "") for name in pipeline.sources
    ]
    ids.append(record_id.of_values(pipeline, {"id": "a"}, "kiosk"))
    rows = [{"id": "a", "oo_high": one.high, "oo_low": one.low} for one in ids]

    def wrong(some: list[dict[str, object]]) -> int:
        return audit._wrong_ids(pipeline, ds.dataset(pa.Table.from_pylist(some)), pc.scalar(True))

    assert wrong(rows[:2]) == 0
    assert wrong(rows) == 1
