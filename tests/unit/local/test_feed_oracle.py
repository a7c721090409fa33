"""The oracle itself, on inputs small enough to see, and the late counts of the shipped cut."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from onlyonce.local.feed import DATA_SETS, feed_files
from tests import oracle


def event(number: int, at: str, user: str = "ann") -> str:
    return f'{{"event_id":"e{number}","user":"{user}","at":"2024-01-01T{at}Z","action":"view"}}'


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_fates(tmp_path: Path) -> None:
    lines = (event(1, "00:00:01"), "{", "[1]", '{"event_id":"e2","user":"ann"}', '{"at":"2024-01-01T00:00:00Z"}')
    path = write(tmp_path / "a", *lines, event(1, "00:00:01"), event(3, "00:00:03"), event(4, "when?"))
    fates = oracle.deliveries([path], oracle.USER_COUNTS)["fate"]
    assert fates.tolist() == ["kept", *["invalid"] * 4, "duplicate", "kept", "invalid"]
    assert oracle.distinct([path], oracle.USER_COUNTS)["event_id"].tolist() == ["e1", "e3"]


def test_counts(tmp_path: Path) -> None:
    lines = [event(1, "00:00:01"), event(2, "00:00:59.999"), event(3, "00:01:00"), event(4, "00:00:07", "bob")]
    records = oracle.distinct([write(tmp_path / "a", *lines, lines[0])], oracle.USER_COUNTS)
    per_user = oracle.counts_per_user(records)
    assert per_user[["user", "count"]].values.tolist() == [["ann", 2], ["bob", 1], ["ann", 1]]
    of_all = oracle.count_of_all(records)
    assert of_all[["count", "users"]].values.tolist() == [[3, 2], [1, 1]]
    assert of_all["window_start"].tolist() == list(pd.to_datetime(["2024-01-01T00:00Z", "2024-01-01T00:01Z"]))
    assert of_all["window_end"].tolist() == list(pd.to_datetime(["2024-01-01T00:01Z", "2024-01-01T00:02Z"]))


def test_flights_leave_unknown_delays_out(tmp_path: Path) -> None:
    def flight(number: int, carrier: str, delay: str) -> str:
        key = f'"carrier":"{carrier}","flight":{number},"origin":"JFK","scheduled_departure":"2013-01-01T10:15:00Z"'
        return f'{{{key},"arr_delay":{delay}}}'

    lines = [flight(1, "UA", "3"), flight(2, "UA", "-4"), flight(3, "UA", "null"), flight(4, "9E", "null"), "{"]
    records = oracle.distinct([write(tmp_path / "a", *lines)], oracle.FLIGHTS)
    table = oracle.flights_per_carrier(records).set_index("carrier")
    assert table.loc["UA", ["flights", "delay_minutes", "mean_delay"]].tolist() == [3, -1, -0.5]
    assert table.loc["9E", "flights"] == 1
    assert table.loc["9E", ["delay_minutes", "mean_delay"]].isna().all()
    assert oracle.flights_per_hour(records)[["flights", "delay_minutes"]].values.tolist() == [[4, -1]]
    ids = pd.DataFrame({"carrier": ["UA"], "flight": [2], "origin": ["JFK"]})
    ids["scheduled_departure"] = pd.Timestamp("2013-01-01T10:15", tz="UTC")
    assert oracle.only(records, ids, oracle.FLIGHTS)["arr_delay"].tolist() == [-4]


def test_late_is_an_end_at_or_before_the_max_event_time_less_the_watermark_delay(tmp_path: Path) -> None:
    first = write(tmp_path / "a", event(1, "00:10:00"), event(2, "00:00:00"))
    second = write(tmp_path / "b", event(1, "00:10:00"), event(3, "00:07:59.999"), event(4, "00:08:00"), "{")
    third = write(tmp_path / "c", event(5, "00:09:00"), event(6, "00:07:00"))
    table = oracle.fates_by_cut([[first], [second], [third]], "2min", "1min", oracle.USER_COUNTS)
    found = table.set_index("event_id")["late"].to_dict()
    # e2: nothing is late in the first batch. e3: its window ends at 8:00, just there. e4: it ends at 9:00.
    assert found == {"e1": False, "e2": False, "e3": True, "e4": False, "e5": False, "e6": True}
    assert table["batch"].tolist() == [0, 0, 1, 1, 2, 2]
    table = oracle.fates_by_cut([[first], [second], [third]], "2min 1ms", "1min", oracle.USER_COUNTS)
    assert not table.set_index("event_id").loc["e3", "late"]


@pytest.mark.parametrize(
    ("pipeline", "of", "files_a_batch", "watermark_delay", "window", "late"),
    [
        ("flights", oracle.FLIGHTS, 4, "2h", "1h", 188),
        ("user_counts", oracle.USER_COUNTS, 3, "2min", "1min", 24),
    ],
)
def test_the_shipped_cut_makes_some_records_late(
    tmp_path: Path, pipeline: str, of: oracle.Input, files_a_batch: int, watermark_delay: str, window: str, late: int
) -> None:
    feed_files(pipeline, tmp_path, duplicates=0)  # first deliveries are cut alike with duplicates
    files = sorted(tmp_path.iterdir())
    batches = [files[start : start + files_a_batch] for start in range(0, len(files), files_a_batch)]
    assert oracle.fates_by_cut(batches, watermark_delay, window, of)["late"].sum() == late
    assert of.record_id == DATA_SETS[pipeline].record_id
