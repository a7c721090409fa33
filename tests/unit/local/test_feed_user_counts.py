"""The made-up events: fixed by the seed, skewed users, some events far behind."""

from __future__ import annotations

import pandas as pd
import pytest

from onlyonce.local import feed


@pytest.fixture(scope="module")
def events() -> pd.DataFrame:
    return feed.user_count_arrivals(None, seed=1)


def test_the_seed_gives_everything(events: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(feed.user_count_arrivals(None, seed=1), events)
    assert not feed.user_count_arrivals(None, seed=2).equals(events)


def test_ids_are_unique(events: pd.DataFrame) -> None:
    assert len(events) == feed.RECORDS
    assert events[list(feed.USER_COUNT_ID)].nunique().tolist() == [len(events)]


def test_events_lie_in_three_hours_from_the_start(events: pd.DataFrame) -> None:
    at = pd.to_datetime(events["at"], utc=True)
    since = at - feed.START
    assert since.min() >= pd.Timedelta(0)
    assert pd.Timedelta(hours=2.9) < since.max() < pd.Timedelta(hours=3)
    assert events["at"].str.fullmatch(r"2024-01-01T\d\d:\d\d:\d\d\.\d{3}Z").all()


def test_users_are_skewed(events: pd.DataFrame) -> None:
    shares = events["user"].value_counts(normalize=True)
    assert shares.iloc[0] > 0.15
    assert shares.head(10).sum() > 0.45
    assert len(shares) > 400


def test_arrival_is_out_of_order_and_some_are_far_behind(events: pd.DataFrame) -> None:
    at = pd.to_datetime(events["at"], utc=True)
    behind = at.cummax() - at
    assert (behind > pd.Timedelta(0)).mean() > 0.5
    assert 100 < (behind > pd.Timedelta(minutes=1)).sum() < 1_000
    assert (behind > pd.Timedelta(minutes=30)).any()


def test_a_limit_is_a_number_of_events() -> None:
    assert len(feed.user_count_arrivals(50, seed=1)) == 50
