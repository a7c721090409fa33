"""A producer that may write to an inbox, and replaces a file by a link while it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from onlyonce.outputs import reprocess
from tests.security.statements import states


@states(
    "A file that another user put into an inbox is opened once, without following a link, and read by that "
    "descriptor, also by `onlyonce release`."
)
def test_a_released_file_that_became_a_link_is_not_read(spark: Any, tmp_path: Path) -> None:
    """It was a file when the release looked at it."""
    secret, file = tmp_path / "secret", tmp_path / "a.jsonl"
    secret.write_text("s3cret\n")
    file.write_bytes(b"one\n\ntwo\xff\r\nlast")

    lines = reprocess.whole_files(spark, [str(file)]).selectExpr("CAST(oo_line AS binary) AS raw").collect()
    file.unlink()
    file.symlink_to(secret)
    swapped = reprocess.whole_files(spark, [str(file)])

    assert [bytes(row.raw) for row in lines] == [b"one", b"", b"two\xff\r", b"last"]
    with pytest.raises(PySparkException, match="a symbolic link"):
        swapped.collect()
