"""Delivery: fixed by its arguments, byte for byte, and never over a file that is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from onlyonce.core.errors import Refused
from onlyonce.local.feed import DATA_SETS, feed_files, json_lines, schedule


def content(inbox: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(inbox.iterdir())}


def all_lines(inbox: Path) -> list[bytes]:
    return [line for part in content(inbox).values() for line in part.splitlines()]


def test_files_are_named_in_order_and_hold_compact_json(tmp_path: Path) -> None:
    report = feed_files("user_counts", tmp_path, files=3, records=300)
    assert list(content(tmp_path)) == [f"user_counts-000{n}-of-0003.jsonl" for n in (1, 2, 3)]
    assert (report.files, report.distinct, report.duplicates, report.lines) == (3, 300, 15, 315)
    assert len(all_lines(tmp_path)) == 315
    for line in all_lines(tmp_path):
        assert json.dumps(json.loads(line), separators=(",", ":")).encode() == line


def test_flights_are_whole_numbers_and_nulls(tmp_path: Path) -> None:
    feed_files("flights", tmp_path, files=2, records=1_000, duplicates=0)
    records = [json.loads(line) for line in all_lines(tmp_path)]
    assert [r["arrived_at"] for r in records] == sorted(r["arrived_at"] for r in records)
    assert {type(r["arr_delay"]) for r in records} == {int, type(None)}
    assert {type(r[name]) for r in records for name in ("flight", "dep_delay", "distance")} == {int}
    assert {r["carrier"] for r in records} >= {"9E", "UA"}  # 9E is a carrier and no number


@pytest.mark.parametrize("duplicates", [0, 0.05, 0.1, 0.5])
def test_each_record_is_there_and_repeated_byte_for_byte(tmp_path: Path, duplicates: float) -> None:
    report = feed_files("user_counts", tmp_path, files=4, records=2_000, duplicates=duplicates)
    seen = Counter(all_lines(tmp_path))
    assert len(seen) == report.distinct == 2_000
    assert len({json.loads(line)["event_id"] for line in seen}) == 2_000
    assert seen.total() - len(seen) == report.duplicates == round(duplicates * 2_000)


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        feed_files("user_counts", tmp_path / name, files=4, records=1_000, seed=7)
    feed_files("user_counts", tmp_path / "other", files=4, records=1_000, seed=8)
    assert content(tmp_path / "a") == content(tmp_path / "b") != content(tmp_path / "other")


def test_a_second_feed_writes_nothing(tmp_path: Path) -> None:
    first = feed_files("user_counts", tmp_path, files=4, records=1_000)
    times = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    again = feed_files("user_counts", tmp_path, files=4, records=1_000)
    assert (first.written, again.written, again.lines) == (4, 0, first.lines)
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())] == times


def test_a_killed_feed_is_completed(tmp_path: Path) -> None:
    feed_files("user_counts", tmp_path, files=4, records=1_000)
    whole = content(tmp_path)
    killed_at = tmp_path / "user_counts-0003-of-0004.jsonl"
    killed_at.rename(tmp_path / f".{killed_at.name}.tmp").write_bytes(b'{"half')
    assert feed_files("user_counts", tmp_path, files=4, records=1_000).written == 1
    assert content(tmp_path) == whole


def test_other_content_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    feed_files("user_counts", tmp_path, files=4, records=1_000)
    (tmp_path / "user_counts-0001-of-0004.jsonl").unlink()
    before = content(tmp_path)
    with pytest.raises(Refused, match=r"user_counts-0002-of-0004\.jsonl is in the inbox already") as refusal:
        feed_files("user_counts", tmp_path, files=4, records=1_000, seed=2)
    assert "another inbox" in refusal.value.hint
    assert content(tmp_path) == before


def test_first_deliveries_are_cut_alike_whatever_is_repeated() -> None:
    def firsts(duplicates: float, seed: int) -> list[list[int]]:
        parts = schedule(1_000, 7, duplicates, seed)
        _, first = np.unique(np.concatenate(parts), return_index=True)
        ends = np.cumsum([part.size for part in parts])
        return [sorted(np.concatenate(parts)[first[np.searchsorted(ends, first, "right") == k]]) for k in range(7)]

    assert firsts(0, 1) == firsts(0.05, 1) == firsts(0.5, 9)
    assert [len(part) for part in firsts(0.5, 9)] == [142, 143, 143, 143, 143, 143, 143]


def test_re_deliveries_come_later_in_the_same_file_and_in_others() -> None:
    parts = schedule(10_000, 10, 0.2, seed=1)
    assert sum(part.size for part in parts) == 12_000
    lines = pd.DataFrame(
        {"record": np.concatenate(parts), "file": np.repeat(np.arange(10), [part.size for part in parts])}
    )
    # First deliveries keep the order of arrival.
    assert lines.drop_duplicates("record")["record"].is_monotonic_increasing
    lines["first_file"] = lines.groupby("record")["file"].transform("first")
    files_later = (lines["file"] - lines["first_file"])[lines.duplicated("record")]
    assert (files_later >= 0).all()
    assert 0.4 < (files_later == 0).mean() < 0.8
    assert (files_later >= 2).any()
    assert lines["record"].value_counts().max() > 2


def test_defaults_fit_small_inputs(tmp_path: Path) -> None:
    assert feed_files("user_counts", tmp_path / "few", records=5, duplicates=0).files == 5
    assert feed_files("user_counts", tmp_path / "all").files == DATA_SETS["user_counts"].files


@pytest.mark.parametrize(
    ("pipeline", "options", "message"),
    [
        ("flight", {}, "did you mean 'flights'"),
        ("orders", {}, "one of: flights, user_counts"),
        ("user_counts", {"duplicates": 1.5}, "duplicates is 1.5"),
        ("user_counts", {"duplicates": float("nan")}, "duplicates is nan"),
        ("user_counts", {"seed": -1}, "the seed is -1"),
        ("user_counts", {"files": 0}, "files is 0"),
        ("user_counts", {"records": 0}, "records is 0"),
        ("user_counts", {"records": 3, "files": 4}, "3 records do not fill 4 files"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, pipeline: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(Refused) as refusal:
        feed_files(pipeline, tmp_path / "inbox", **options)  # type: ignore[arg-type]
    assert message in str(refusal.value)
    assert not (tmp_path / "inbox").exists()


def test_text_is_written_as_json_wants_it() -> None:
    table = pd.DataFrame({"text": ['a "quoted" word', "é", "two\nlines", "\u2028"], "n": [1, 2, 3, 4]})
    assert [json.loads(line)["text"] for line in json_lines(table)] == table["text"].tolist()
