"""The oracle: what the pipelines must give, as a plain pandas batch computation.

It shares no code with the product: it reads the JSON lines itself and writes every rule down a second
time, as simply as it can be said. If the two disagree, one of them is wrong. Records are compared by the
columns that identify them, never by a hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Input:
    """What the oracle must know of a pipeline's input: which columns identify a record, and its event time."""

    record_id: tuple[str, ...]
    event_time: str


FLIGHTS = Input(("carrier", "flight", "origin", "scheduled_departure"), "scheduled_departure")
USER_COUNTS = Input(("event_id",), "at")


def deliveries(files: Iterable[Path], of: Input) -> pd.DataFrame:
    """Every line in order, with `event_time` (UTC) and `fate`: invalid, kept or duplicate.

    Invalid: no JSON object, an id column missing or null, or no event time. Not looked at: event times in
    the far future, and the columns' declared types.
    """
    lines = [line for path in files for line in path.read_bytes().split(b"\n") if line.strip()]
    # As objects: one broken line must not turn the whole numbers of a column into floats.
    rows = pd.DataFrame([_parsed(line) for line in lines], dtype=object)
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *of.record_id, of.event_time])))
    rows["event_time"] = _instants(rows[of.event_time])
    complete = rows[list(of.record_id)].notna().all(axis="columns") & rows["event_time"].notna()
    rows["fate"] = "invalid"
    rows.loc[complete, "fate"] = "kept"
    again = rows[complete].duplicated(list(of.record_id))
    rows.loc[again[again].index, "fate"] = "duplicate"
    return rows


def distinct(files: Iterable[Path], of: Input) -> pd.DataFrame:
    """The valid records, each once, in the order of their first delivery."""
    rows = deliveries(files, of)
    return rows[rows["fate"] == "kept"].drop(columns="fate").reset_index(drop=True)


def only(records: pd.DataFrame, ids: pd.DataFrame, of: Input) -> pd.DataFrame:
    """The records whose id is a row of `ids` (columns `of.record_id`; the event time as text or instant)."""
    return records[_keys(records, of).isin(_keys(ids, of))].reset_index(drop=True)


def flights_per_carrier(records: pd.DataFrame, window: str = "1h") -> pd.DataFrame:
    """window_start, window_end, carrier, flights, delay_minutes, mean_delay; sorted."""
    return _flights(records, window, ["carrier"])


def flights_per_hour(records: pd.DataFrame, window: str = "1h") -> pd.DataFrame:
    """window_start, window_end, flights, delay_minutes, mean_delay; sorted."""
    return _flights(records, window, [])


def counts_per_user(records: pd.DataFrame, window: str = "1min") -> pd.DataFrame:
    """window_start, window_end, user, count; sorted."""
    return _per_window(records, window, ["user"], count=("event_time", "size"))


def count_of_all(records: pd.DataFrame, window: str = "1min") -> pd.DataFrame:
    """window_start, window_end, count, users; sorted. From the records, not from the counts per user."""
    return _per_window(records, window, [], count=("event_time", "size"), users=("user", "nunique"))


def fates_by_cut(
    batches: Sequence[Sequence[Path]], watermark_delay: str, window: str, of: Input = FLIGHTS
) -> pd.DataFrame:
    """The distinct records with batch (from 0), max event time, window_start, window_end and `late`, in delivery order.

    A record belongs to the batch of its first delivery. The max event time before a batch is the largest event time
    of the batches before it; a record is late for its window iff the window's end is at or before the max event time
    less the watermark delay, in whole milliseconds. Fixed windows; nothing has closed by silence or by an end.
    """
    rows = pd.concat(
        [deliveries(files, of).assign(batch=number) for number, files in enumerate(batches)], ignore_index=True
    )
    rows = rows[rows["fate"] != "invalid"].drop_duplicates(list(of.record_id)).drop(columns="fate")
    reached = rows.groupby("batch")["event_time"].max().reindex(range(len(batches))).cummax().ffill()
    rows["max_event_time"] = rows["batch"].map(reached.shift(1))
    rows = _with_window(rows, window).reset_index(drop=True)
    # Where there is no max event time yet the comparison with NaT is false: nothing is late.
    closed_until = (rows["max_event_time"] - pd.Timedelta(watermark_delay)).dt.floor("ms")
    return rows.assign(late=rows["window_end"] <= closed_until)


def _parsed(line: bytes) -> dict[str, object]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _instants(column: pd.Series) -> pd.Series:
    return pd.to_datetime(column, utc=True, format="ISO8601", errors="coerce").astype("datetime64[ns, UTC]")


def _keys(rows: pd.DataFrame, of: Input) -> pd.MultiIndex:
    """The ids as comparable values: an event time in the id is compared as an instant, not as text."""
    ids = {name: _instants(rows[name]) if name == of.event_time else rows[name] for name in of.record_id}
    return pd.MultiIndex.from_frame(pd.DataFrame(ids))


def _with_window(records: pd.DataFrame, window: str) -> pd.DataFrame:
    start = records["event_time"].dt.floor(window)
    return records.assign(window_start=start, window_end=start + pd.Timedelta(window))


def _per_window(records: pd.DataFrame, window: str, by: list[str], **figures: tuple[str, str]) -> pd.DataFrame:
    keys = ["window_start", "window_end", *by]
    groups = _with_window(records, window).groupby(keys, as_index=False)
    return groups.agg(**figures).sort_values(keys, ignore_index=True)


def _flights(records: pd.DataFrame, window: str, by: list[str]) -> pd.DataFrame:
    """Where no flight of a group has a delay (all diverted), delay_minutes is NA and mean_delay NaN."""
    table = _per_window(
        records.assign(arr_delay=pd.to_numeric(records["arr_delay"]).astype("float64")),
        window,
        by,
        flights=("event_time", "size"),
        delay_minutes=("arr_delay", "sum"),
        mean_delay=("arr_delay", "mean"),
    )
    minutes = table["delay_minutes"].astype("Int64").mask(table["mean_delay"].isna())
    return table.assign(delay_minutes=minutes)
