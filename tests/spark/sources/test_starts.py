"""Where a source starts is decided by its first run, once, for the stream and for each bounded run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import Custom, Files, Growing, Pipeline
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.errors import Refused
from onlyonce.sources import discovery, folders, source_files
from onlyonce.sources.discovery import Inbox
from tests.support.arrivals import records_of
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

LINE = b'{"id": "%d"}\n'


def register(spark: SparkSession, pipeline: Pipeline, home: Path, instance: str = "shop") -> int:
    """A run's listing; gives the number of new entries."""
    now = datetime.now(UTC)
    return source_files.register(spark, _inbox(pipeline, home, instance), Driver("x", 0, 1, "x"), now)


def _inbox(pipeline: Pipeline, home: Path, instance: str) -> Inbox:
    return Inbox(
        instance, home / "inbox", home / "data" / instance / "files", 10, pipeline, folders=folders.of(pipeline)
    )


def read(spark: SparkSession, pipeline: Pipeline, home: Path, instance: str = "shop") -> list[str]:
    """The lines of all batches that are registered, and of the start none."""
    entries = spark.read.format("delta").load(str(_inbox(pipeline, home, instance).table))
    found: list[str] = []
    for number in range(-1, 5):
        files = source_files.listed(entries.filter(f"batch_no = {number}")).files
        assert number >= 0 or files == []
        if files:
            lines, count = source_files.lines(spark, pipeline, files, source_files.unreadable(pipeline, files))
            values = [row.id or row.oo_raw for row in records_of(spark, lines, pipeline, datetime.now(UTC))]
            assert len(values) == count
            found += values
    return sorted(value.split('"')[3] if '"' in value else value for value in found)


def append(path: Path, *numbers: int) -> None:
    """Lines of a file, in an inbox."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(LINE % number for number in numbers))


def test_what_was_there_at_the_first_run_is_left_out_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files, growing files and a reader; an inbox that is empty then leaves nothing out; a bounded run does the
    same."""
    for kind in (Files, Growing):
        home = tmp_path / kind.__name__
        monkeypatch.setenv("ONLYONCE_HOME", str(home))
        latest = replace(SHOP, source=kind(start="latest"), record_id=())
        with pytest.raises(Refused, match="no run of its stream has decided"):
            register(spark, latest, home, "shop@1")
        append(home / "inbox/old.log", 1, 2)
        assert source_files.waiting(_inbox(latest, home, "shop")) == []
        assert register(spark, latest, home) == 0
        append(home / "inbox/new.log", 3)
        if kind is Growing:
            append(home / "inbox/old.log", 4)
        assert register(spark, latest, home) == (2 if kind is Growing else 1)
        wanted = ["3", "4"] if kind is Growing else ["3"]
        assert read(spark, latest, home) == wanted
        earlier = replace(latest, source=kind())
        assert register(spark, earlier, home) == 0
        register(spark, latest, home, "shop@1")
        assert read(spark, latest, home, "shop@1") == wanted

    home = tmp_path / "empty"
    latest = replace(SHOP, source=Files(start="latest"), record_id=())
    assert register(spark, latest, home) == 0
    append(home / "inbox/first.log", 1)
    assert register(spark, latest, home) == 1
    assert read(spark, latest, home) == ["1"]


def test_a_reader_starts_behind_its_ends(spark: SparkSession, tmp_path: Path) -> None:
    """Latest: by number; parts that come later are read from their begin."""
    raw = tmp_path / "raw"
    text = b'{"id": "%d", "at": "2026-01-01T00:00:00Z"}\n'
    raw.mkdir()
    (raw / "a.jsonl").write_bytes(text % 1 + text % 2)
    source = Custom(
        reader="tests.support.readers:Lines", needs_dedup=False, start="latest", options={"folder": str(raw)}
    )
    pipeline = replace(SHOP, source=source, record_id=())
    assert register(spark, pipeline, tmp_path) == 0
    (raw / "a.jsonl").write_bytes(text % 1 + text % 2 + text % 3)
    (raw / "b.jsonl").write_bytes(text % 4)
    assert register(spark, pipeline, tmp_path) == 2
    assert read(spark, pipeline, tmp_path) == ["3", "4"]


def test_files_below_folders_are_read_once_by_the_stream_and_a_bounded_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were there at the first run of a source that starts later are left out, in a folder too; the manifest
    has the inbox."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    pipeline = replace(SHOP, source=Files(recursive=True, start="latest"))
    append(tmp_path / "inbox" / "dt=1" / "a", 1)
    register(spark, pipeline, tmp_path)
    append(tmp_path / "inbox" / "dt=1" / "b", 2)
    append(tmp_path / "inbox" / "dt=2" / "hour=1" / "a", 3)

    for instance in ("shop", "shop@1"):
        assert [register(spark, pipeline, tmp_path, instance) for _ in range(3)][-1] == 0
        assert read(spark, pipeline, tmp_path, instance) == ["2", "3"]
        there = discovery.registered(_inbox(pipeline, tmp_path, instance).table, pipeline)
        assert there.roots == (str(tmp_path / "inbox"),)
