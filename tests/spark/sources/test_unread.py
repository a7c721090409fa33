"""What each kind of source has and no committed batch has read: before a run has listed it, between that and its
commit, and after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Custom, DeltaSource, Files, Growing, Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core import backlog as model
from onlyonce.core.backlog import Backlog
from onlyonce.core.errors import OnlyonceError
from onlyonce.sources import backlog
from onlyonce.sources.all_sources import source_of
from tests.support import shop_oracle, tables
from tests.support.broker import Broker
from tests.support.readers import Lines
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DRIVER = Driver("shop/receive/1", 1, 1, "test")
Records = list[dict[str, Any]]
LINE = 100
"""The bytes of each line that is put."""


class Told(Lines):
    """A reader that says what waits."""

    def backlog(self, read: dict[str, int]) -> dict[str, Any]:
        """Return the unread records, their bytes, and the age of the oldest."""
        records = sum(end - read.get(part, 0) for part, end in self.ends().items())
        return {"records": records, "bytes": records * LINE, "oldest": NOON if records else None}


@dataclass
class Kind:
    """A kind of source: how two rounds of records get into it."""

    source: Any
    put: Callable[[int, Records], object]
    counted: bool
    """Whether it knows the number of its records before a run has listed them."""
    sized: bool = True
    timed: bool = True


def lines(records: Records) -> bytes:
    """The records as lines of one length."""
    return b"".join(json.dumps(record).encode().ljust(LINE - 1) + b"\n" for record in records)


def kinds(folder: Path, broker: Broker | None) -> dict[str, Kind]:
    """Each kind of source below a folder."""
    inbox, table = folder / "inbox", folder / "table"
    inbox.mkdir()

    def file(number: int, records: Records) -> object:
        return (inbox / f"{number}.jsonl").write_bytes(lines(records))

    def log(_: int, records: Records) -> object:
        with (inbox / "one.log").open("ab") as grown:
            return grown.write(lines(records))

    def version(_: int, records: Records) -> None:
        typed = [record | {"at": datetime.fromisoformat(record["at"])} for record in records]
        write_deltalake(str(table), pa.Table.from_pylist(typed, tables.SCHEMA), mode="append")

    reader: dict[str, Any] = {"options": {"folder": str(inbox)}, "needs_dedup": False}
    found = {
        "files": Kind(Files(inbox=str(inbox)), file, counted=False),
        "growing": Kind(Growing(inbox=str(inbox)), log, counted=False),
        "table": Kind(DeltaSource(path=str(table)), version, counted=True),
        "reader": Kind(
            Custom(reader="tests.support.readers:Lines", **reader), file, counted=True, sized=False, timed=False
        ),
        "telling reader": Kind(Custom(reader=f"{__name__}:Told", **reader), file, counted=True),
    }
    if broker is not None:
        topic = broker.topic("shop", partitions=2)

        def send(_: int, records: Records) -> None:
            for part in (0, 1):
                broker.produce(topic, *(json.dumps(record) for record in records[part::2]), partition=part)

        found["topic"] = Kind(Kafka(topic=topic, servers=broker.servers), send, counted=True, sized=False)
    return found


def waits(kind: Kind, found: Backlog, records: int, *, listed: bool) -> None:
    """The answer has so many records; what the source can't know is null, and never 0."""
    assert not found.failed
    assert found.waits
    assert found.records == (records if kind.counted or listed else None)
    assert (found.bytes is not None) == kind.sized
    assert (found.oldest is not None) == (kind.timed or found.oldest is not None)
    if kind.sized and not isinstance(kind.source, DeltaSource):
        assert found.bytes == records * LINE


@pytest.mark.parametrize("name", ["files", "growing", "table", "reader", "telling reader", "topic"])
def test_unread_input(
    name: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """All of it, then what no batch has committed, then nothing, then what has come since."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    kind = kinds(tmp_path, request.getfixturevalue("broker") if name == "topic" else None)[name]
    pipeline, readings = replace(SHOP, source=kind.source, record_id=()), dict[str, Any]()
    first, second = shop_oracle.sales(20, 2, duplicates=0)

    def unread(taken_in: int | None) -> Backlog:
        return backlog.unread(pipeline, taken_in, readings)

    kind.put(0, first)
    waits(kind, unread(None), len(first), listed=False)
    source_of(pipeline, "shop", None).register(spark, DRIVER, NOON)
    waits(kind, unread(None), len(first), listed=True)
    committed = source_of(pipeline, "shop", None).last_batch()
    assert unread(committed) == Backlog()
    kind.put(1, second)
    waits(kind, unread(committed), len(second), listed=False)


@pytest.mark.parametrize("name", ["files", "growing", "table", "reader", "topic"])
def test_source_waits_as_long_as_a_run_would_register(
    name: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Asked without Spark: before the first run, after it not, and again once something has come."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    kind = kinds(tmp_path, request.getfixturevalue("broker") if name == "topic" else None)[name]
    source = source_of(replace(SHOP, source=kind.source, record_id=()), "shop", None)
    first, second = shop_oracle.sales(20, 2, duplicates=0)
    kind.put(0, first)
    before = source.waits()
    source.register(spark, DRIVER, NOON)
    registered = source.waits()

    kind.put(1, second)

    assert (before, registered, source.waits()) == (True, False, True)
    assert source.register(spark, DRIVER, NOON)
    assert not source.waits()


@pytest.mark.parametrize("change", ["replaced", "cut short", "half a record", "compacted", "by name"])
def test_source_waits_for_refusals_and_not_for_what_no_run_reads(
    change: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was replaced or cut short is a record without a content; a half record and a compaction are none."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    name, reads = CHANGES[change]
    kind, inbox = kinds(tmp_path, None)[name], tmp_path / "inbox"
    pipeline = replace(SHOP, source=kind.source, record_id=())
    [first] = shop_oracle.sales(20, 1, duplicates=0)
    kind.put(0, first)
    source_of(pipeline, "shop", None).register(spark, DRIVER, NOON)

    if change == "replaced":
        kind.put(0, first[1:])
    elif change == "cut short":
        (inbox / "one.log").write_bytes(lines(first[1:]))
    elif change == "half a record":
        with (inbox / "one.log").open("ab") as grown:
            grown.write(b'{"half')
    elif change == "compacted":
        kind.put(1, first)
        source_of(pipeline, "shop", None).register(spark, DRIVER, NOON)
        assert DeltaTable(str(tmp_path / "table")).optimize.compact()["numFilesRemoved"] > 1
    else:
        pipeline = replace(pipeline, source=DeltaSource(table="shop.sales"))

    assert source_of(pipeline, "shop", None).waits() is reads


CHANGES = {
    "replaced": ("files", True), "cut short": ("growing", True), "half a record": ("growing", False),
    "compacted": ("table", False), "by name": ("table", True),
}  # fmt: skip


def test_start_leaves_out_earlier_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input before the start is never read, so it does not wait."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    first, _ = shop_oracle.sales(20, 2, duplicates=0)
    kind = kinds(tmp_path, None)["files"]
    kind.put(0, first)

    def found(start: Any) -> Backlog:
        return backlog.unread(replace(SHOP, source=replace(kind.source, start=start)), None, {})

    assert found("latest") == found(datetime.now(UTC) + timedelta(days=1)) == Backlog()
    assert found(NOON - timedelta(days=9999)).bytes == len(first) * LINE


def failing(tmp_path: Path) -> dict[str, Pipeline]:
    """Sources that can't be asked."""
    sources: dict[str, Any] = {
        "is not a folder": Files(inbox=str(tmp_path / "none")),
        "does not exist": DeltaSource(path=str(tmp_path / "none")),
        "does not answer": Kafka(topic="shop", servers="127.0.0.1:1"),
        "has no counterpart": Kafka(
            topic="shop", servers="127.0.0.1:1", options={"ssl.truststore.location": "/trust.jks"}
        ),
    }
    return {why: replace(SHOP, source=source) for why, source in sources.items()}


@pytest.mark.parametrize("why", ["is not a folder", "does not exist", "does not answer", "has no counterpart"])
def test_failed_request_says_why(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then: no value is 0."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(model, "ANSWER_SECONDS", 1.0)
    pipeline = failing(tmp_path)[why]
    with pytest.raises(OnlyonceError, match=why):
        backlog.unread(pipeline, None, {})

    [(_, found)] = backlog.Asker().ask([pipeline], {}).values()

    assert found.failed
    assert (found.records, found.bytes, found.oldest) == (None, None, None)
