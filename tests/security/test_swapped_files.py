"""A producer that may write to an inbox, and replaces a file by a link while it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import Retryable
from onlyonce.operate import erase_inputs, erase_search
from onlyonce.outputs import reprocess
from onlyonce.sinks.base.stored import file_at
from tests.security.statements import states


@states(
    "A file that another user put into an inbox is opened once with `O_NOFOLLOW`, and all reads use that file "
    "descriptor.",
    "`onlyonce reprocess` opens it in the same way.",
)
def test_a_reprocessed_file_that_became_a_link_is_not_read(spark: Any, tmp_path: Path) -> None:
    """It was a file when the reprocessing looked at it."""
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


@states("`onlyonce forget` reads, searches and blanks such a file in the same way.")
def test_a_file_that_became_a_link_is_not_blanked(tmp_path: Path) -> None:
    """It was a file with the person's line when the erasure looked at it; the link names what only the eraser reads."""
    inbox, secret = tmp_path / "inbox", tmp_path / "secret"
    inbox.mkdir()
    file, line = inbox / "a.jsonl", '{"id":"u17-secret"}\n'
    file.write_text(line)
    secret.write_text(line + "s3cret\n")
    mentions = Mentions(erasure.read_conditions("id = 'u17-secret'", {"id": "string"}))
    searched = erase_search._no_link(file_at(file, ""))
    found = erase_search.search_file(searched, mentions)
    file.unlink()
    file.symlink_to(secret)

    with pytest.raises(Retryable, match="is not a file any more"):
        erase_inputs.blank_files(erase_inputs.Lines(file, [(0, len(line) - 1)], (len(line), 0)))

    assert found is not None
    assert erase_search.search_file(searched, mentions) is None
    assert [*inbox.iterdir()] == [file]
    assert secret.read_text() == line + "s3cret\n"
