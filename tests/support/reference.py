"""What the two pipelines that ship must give for an input that was cut into batches, whatever source it came from."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tests import oracle
from tests.spark.run.test_reference import KEYS, same
from tests.support.platform import Platform

OF = {"flights": (oracle.FLIGHTS, "2h", "1h"), "user_counts": (oracle.USER_COUNTS, "2min", "1min")}
"""The data set, its watermark delay and its window."""


def compare(platform: Platform, name: str, batches: list[list[Path]]) -> None:
    """The log tells each line's fate, and every output is the batch over the distinct rows in time of these lines."""
    files = [path for batch in batches for path in batch]
    of, watermark_delay, window = OF[name]
    found = oracle.distinct(files, of)
    fates = oracle.fates_by_cut(batches, watermark_delay, window, of=of)
    assert len(fates) == len(found)
    log = platform.sql(f"SELECT * FROM onlyonce.conservation WHERE instance = '{name}'")
    assert log["conserved"].all()
    received = log[log["query"] == "receive"]
    assert received["records_in"].sum() == sum(path.read_bytes().count(b"\n") for path in files)
    assert received["kept"].sum() == len(found)
    results_are_of(platform, name, oracle.only(found, fates[~fates["late"]], of))


def results_are_of(platform: Platform, name: str, rows: pd.DataFrame) -> None:
    """Every output is the batch over these rows: those in time, or, once it was backfilled, all."""
    if name == "user_counts":
        same(oracle.counts_per_user(rows), platform.table("user_counts/per_user"), [*KEYS, "user", "count"], [])
        of_all = platform.sql("SELECT * FROM results.count_of_all")
        same(oracle.count_of_all(rows), of_all, [*KEYS, "count", "users"], [])
        return
    exact = ["flights", "delay_minutes"]
    per_carrier = platform.table("flights/per_carrier")
    same(oracle.flights_per_carrier(rows), per_carrier, [*KEYS, "carrier", *exact], ["mean_delay"])
    per_hour = platform.sql("SELECT * FROM results.flights_per_hour")
    same(oracle.flights_per_hour(rows), per_hour, [*KEYS, *exact], ["mean_delay"])
