"""Which sources a reprocessing refuses: it writes JSON lines into an inbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.outputs import reprocess

DECLARATION = """
from dataclasses import replace
from onlyonce import Files, Growing, Kafka
from tests.support.shop import SHOP

PIPELINES = [replace(SHOP, source={source})]
"""


@pytest.mark.parametrize(
    ("source", "reads", "next_step"),
    [
        ("Files(format='csv', header=True)", "reads csv", "deliver them as new input"),
        ("Growing(format='csv')", "reads growing csv", "deliver them as new input"),
        ("Files(format='parquet')", "reads parquet", "deliver them as new input"),
        ("Kafka(topic='shop', servers='localhost:1')", "reads the topic shop of localhost:1", "send them to the topic"),
    ],
)
def test_source_without_json_lines_is_refused(tmp_path: Path, source: str, reads: str, next_step: str) -> None:
    """Before anything is read or written, with what to do instead."""
    file = tmp_path / "pipelines.py"
    file.write_text(DECLARATION.format(source=source))

    with pytest.raises(Refused, match=r"^only JSON lines of an inbox can be reprocessed") as refused:
        reprocess.main(["shop", "--invalid", "--pipelines", str(file)])

    assert reads in refused.value.what
    assert refused.value.data == "nothing was changed"
    assert next_step in (refused.value.hint or "")
    assert "onlyonce invalid shop" in (refused.value.hint or "")
