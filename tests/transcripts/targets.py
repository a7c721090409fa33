"""Where the outputs of a transcript write that name a `sink`, for its play on Spark; and its compressed files.

A MariaDB, an Iceberg catalog, and a server that is BigQuery's write streams, each only for who asks for it.
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.sinks.iceberg import iceberg_catalogs
from onlyonce.sinks.outbox import deliver as delivery
from onlyonce.sinks.outbox import send_bigquery
from tests.support.iceberg_shop import CATALOG, configured
from tests.support.mariadb import MariaDB
from tests.support.platform import Platform
from tests.support.write_streams import WriteStreams
from tests.transcripts.pipelines import MYSQL
from tests.transcripts.story import Declared, Story

COLUMNS = {"window_start": "TIMESTAMP", "window_end": "TIMESTAMP", "key": "STRING", "records": "INT64"}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
}
_READERS: dict[str, Callable[[str], list[dict[str, Any]]]] = {}


@contextmanager
def there(
    platform: Platform, told: Story, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """The targets that a transcript asks for, while it is entered."""
    _READERS.clear()
    asked = {declared.sink for declared in told.outputs}
    if "mysql" in asked:
        server: MariaDB = request.getfixturevalue("mariadb")
        name = server.new_database()
        platform.give(monkeypatch, **{MYSQL: server.url(name)})
        _READERS["mysql"] = lambda table: _named(
            server.rows(name, f"SELECT window_start, window_end, `key`, records FROM `{table}`")
        )
    if "iceberg" in asked:
        postgres, folder = request.getfixturevalue("server"), request.getfixturevalue("tmp_path")
        platform.give(monkeypatch, **configured(postgres.url("writer", postgres.new_database()), folder))
        _READERS["iceberg"] = _of_iceberg
    if "bigquery stream" not in asked:
        yield
        return
    with WriteStreams(columns=COLUMNS) as streams:
        platform.give(monkeypatch, **{send_bigquery.EMULATOR: streams.address})
        _READERS["bigquery stream"] = lambda _: streams.rows()
        yield


def deliver(told: Story) -> None:
    """Send what a run has put into the outbox."""
    if "bigquery stream" in _READERS:
        delivery.main([told.name])


def rows(platform: Platform, told: Story, declared: Declared) -> list[dict[str, Any]]:
    """What a reader of an output's table sees."""
    if declared.sink == "postgres":
        return _named(
            [
                tuple(row)
                for row in platform.sql(
                    f"SELECT window_start, window_end, key, records FROM results.{declared.name}"
                ).itertuples(index=False)
            ]
        )
    return _READERS[declared.sink](declared.name)


def pack(path: Path, how: str, *, cut_short: bool) -> None:
    """Put a compressed file in the place of a file of the inbox; cut short, it lacks its last bytes."""
    data = PACKERS[how](path.read_bytes())
    hidden = path.with_name(f".{path.name}.{how}")
    hidden.write_bytes(data[:-5] if cut_short else data)
    path.unlink()
    hidden.rename(path.with_name(f"{path.name}.{how}"))


def _of_iceberg(table: str) -> list[dict[str, Any]]:
    with iceberg_catalogs.open_catalog(CATALOG) as found:
        return list(found.load_table(f"results.{table}").scan().to_arrow().to_pylist())


def _named(found: list[Any]) -> list[dict[str, Any]]:
    """MySQL has times in UTC without saying so."""
    return [
        dict(
            zip(
                COLUMNS,
                (value.replace(tzinfo=value.tzinfo or UTC) if hasattr(value, "tzinfo") else value for value in row),
                strict=True,
            )
        )
        for row in found
    ]
