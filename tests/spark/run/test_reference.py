"""The two pipelines that ship, on their data, against the plain batch computation of tests/oracle.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce import settings
from onlyonce.api.pipeline import Files
from onlyonce.local.feed import feed_files
from tests import oracle
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

KEYS = ["window_start", "window_end"]
FILES_A_BATCH = {
    one.name: one.source.max_files_a_batch for one in (FLIGHTS, USER_COUNTS) if isinstance(one.source, Files)
}
FIRST, LAST = "2000-01-01", "2100-01-01"


def cut(files: list[Path], size: int) -> list[list[Path]]:
    """Files by name, `size` a batch, as the manifest cuts them."""
    ordered = sorted(files)
    return [ordered[n : n + size] for n in range(0, len(ordered), size)]


def same(wanted: pd.DataFrame, found: pd.DataFrame, exact: list[str], floats: list[str]) -> None:
    """Equal as multisets over the exact columns, and close in the floats."""
    assert multiset(plain(wanted), *exact) == multiset(plain(found), *exact)
    for name in floats:
        both = [plain(f).sort_values(exact)[name].astype(float).reset_index(drop=True) for f in (wanted, found)]
        pd.testing.assert_series_equal(*both, rtol=1e-9)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Times and whole numbers in one form, wherever they come from."""
    times = {name: pd.to_datetime(frame[name], utc=True).dt.as_unit("us") for name in KEYS}
    whole = {
        n: pd.to_numeric(frame[n]).astype("Int64") for n in ("flights", "count", "users", "delay_minutes") if n in frame
    }
    return frame.assign(**times, **whole)


def test_user_counts_equals_the_textbook(new_platform: Callable[..., Platform], spark: object) -> None:
    """Per-user counts and the count of all equal the batch over the rows in time, agree in every window; a bounded
    run equals the batch over everything, and so does the stream once it is backfilled."""
    platform = new_platform("jobs/pipelines.py")
    feed_files("user_counts", settings.inbox("user_counts"), duplicates=0.1, records=6000)
    files = sorted(settings.inbox("user_counts").glob("*.jsonl"))

    platform.run("user_counts", "--close")
    platform.run("user_counts", "--bounded")

    records = oracle.distinct(files, oracle.USER_COUNTS)
    fates = oracle.fates_by_cut(cut(files, FILES_A_BATCH["user_counts"]), "2min", "1min", of=oracle.USER_COUNTS)
    in_time = oracle.only(records, fates[~fates["late"]], oracle.USER_COUNTS)
    for rows, suffix in ((in_time, ""), (records, "@1"), (records, "")):
        if rows is records and not suffix:
            platform.backfill("user_counts", "--from", FIRST, "--to", LAST)
        per_user = platform.table(f"user_counts/per_user{suffix}")
        of_all = platform.sql(f'SELECT * FROM results."count_of_all{suffix}"')
        same(oracle.counts_per_user(rows), per_user, [*KEYS, "user", "count"], [])
        same(oracle.count_of_all(rows), of_all, [*KEYS, "count", "users"], [])
        agreed = per_user.groupby("window_start")["count"].sum()
        assert agreed.to_dict() == of_all.set_index("window_start")["count"].to_dict()
    assert (
        fates["late"].sum()
        == platform.sql("SELECT sum(late) AS n FROM onlyonce.late WHERE instance = 'user_counts'")["n"][0]
    )


def check_flights(platform: Platform) -> int:
    """Stream and close, compare; backfill, compare with the batch over all flights. Gives how many were late."""
    files = sorted(settings.inbox("flights").glob("*.jsonl"))

    platform.run("flights", "--close")

    records = oracle.distinct(files, oracle.FLIGHTS)
    fates = oracle.fates_by_cut(cut(files, FILES_A_BATCH["flights"]), "2h", "1h")
    in_time = oracle.only(records, fates[~fates["late"]], oracle.FLIGHTS)
    exact = ["flights", "delay_minutes"]
    for rows in (in_time, records):
        if rows is records:
            platform.backfill("flights", "--from", FIRST, "--to", LAST)
        same(
            oracle.flights_per_carrier(rows),
            platform.table("flights/per_carrier"),
            [*KEYS, "carrier", *exact],
            ["mean_delay"],
        )
        same(
            oracle.flights_per_hour(rows),
            platform.sql("SELECT * FROM results.flights_per_hour"),
            [*KEYS, *exact],
            ["mean_delay"],
        )
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
    return int(fates["late"].sum())


def test_flights_equal_the_batch_over_the_rows_in_time_and_backfilled_over_all(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Flights per carrier and hour and over all, on real disorder."""
    platform = new_platform("jobs/pipelines.py")
    feed_files("flights", settings.inbox("flights"), duplicates=0.1, records=20_000, files=16)

    assert check_flights(platform) > 0


@pytest.mark.slow
def test_all_flights_of_the_year(new_platform: Callable[..., Platform], spark: object) -> None:
    """The same over the whole year, a tenth of it delivered twice."""
    platform = new_platform("jobs/pipelines.py")
    feed_files("flights", settings.inbox("flights"), duplicates=0.1)

    assert check_flights(platform) > 0
