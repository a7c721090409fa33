"""Tables of RocksDB, as Spark's snapshots of state have them, read without RocksDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.operate import erase_search
from onlyonce.tables import checkpoint

pytestmark = pytest.mark.spark

COUNT = 3000


@pytest.mark.parametrize("compression", ["NO_COMPRESSION", "LZ4_COMPRESSION", "SNAPPY_COMPRESSION", "ZSTD_COMPRESSION"])
def test_each_entry_of_a_state_table_is_read(spark: Any, tmp_path: Path, compression: str) -> None:
    """Of several blocks. A key that shares its beginning with the one before is whole."""
    file = tmp_path / "000008.sst"
    _write(spark._jvm, str(file), compression)
    content = file.read_bytes()

    found = list(checkpoint.state_entries(content))

    assert found == [(f"person-{number:06}".encode(), f"state of {number}".encode() * 5) for number in range(COUNT)]
    asked = Mentions(erasure.read_conditions("id = 'person-001234'", {"id": "string"}))
    assert erase_search.count_mentions(content, asked) == 1
    assert b"person-001234" not in content


def _write(jvm: Any, file: str, compression: str) -> None:
    """As Spark does it: with the format version of its settings."""
    rocks = jvm.org.rocksdb
    rocks.RocksDB.loadLibrary()
    table = rocks.BlockBasedTableConfig().setFormatVersion(5)
    options = (
        rocks.Options().setTableFormatConfig(table).setCompressionType(getattr(rocks.CompressionType, compression))
    )
    writer = rocks.SstFileWriter(rocks.EnvOptions(), options)
    writer.open(file)
    for number in range(COUNT):
        writer.put(f"person-{number:06}".encode(), f"state of {number}".encode() * 5)
    writer.finish()
    writer.close()
