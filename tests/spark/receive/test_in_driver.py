"""A small batch is taken in by the driver, a large one by Spark's tasks: nobody can tell which from what is
committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.tables import commit, opening
from tests.fault.test_replay import forget_last_commit
from tests.spark.receive.test_plans import Plans
from tests.support import shop_oracle
from tests.support.check_shop import check
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

NEVER, ALWAYS = "0", str(1 << 30)
OF_A_RUN = ["oo_ingestion_time"]
OF_ITS_PLACE = ["oo_high", "oo_low", "oo_partition"]
"""By position the id has the folder of the platform in it; without an exchange a record's partition is that of whoever
read it."""
UNITS = "SELECT unique_id, rows, content_hash FROM onlyonce.commits WHERE unique_id LIKE '%/receive/%'"
FATES = "SELECT batch, records_in, kept, invalid, expired, duplicate FROM onlyonce.batches WHERE query = 'receive'"
ONE_OUTPUT, LOOSE, BY_PLACE = (
    f"tests/support/lean_{name}.py" for name in ("shop_of_one", "loose_shop", "shop_by_place")
)


def rows(platform: Platform, but: list[str]) -> Counter[Any]:
    """Return all of `events` but some columns, as strings, nested columns too.

    A place is told without the home of the platform.
    """
    events = platform.events().drop(columns=but).astype(str)
    return multiset(events.assign(oo_place=events["oo_place"].str.replace(str(platform.home), "", regex=False)))


def taken_in(platform: Platform, monkeypatch: pytest.MonkeyPatch, bytes_in_driver: str) -> None:
    """Files with re-deliveries, some of them in the batch itself, in two runs."""
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=bytes_in_driver)
    files = shop_oracle.sales(300, 3)
    for number, records in enumerate([*files, files[0]]):
        platform.put("shop", f"sales-{number:04}.jsonl", records)
        if number % 2:
            platform.run("shop")


def jobs_of(plans: Plans, each: int = 2) -> int:
    """How many batches of receive were Spark's: each reads with one job, and writes with another; without a catalog
    with the same."""
    return len(plans.of("shop/receive/1", "MapInArrow")) // each


@pytest.mark.parametrize(
    "declared", [ONE_OUTPUT, *(pytest.param(name, marks=pytest.mark.whole) for name in (LOOSE, BY_PLACE))]
)
def test_events_and_units_are_the_same_whoever_took_the_batch_in(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: Any, declared: str
) -> None:
    """Each row with its ids, partition, batch and frontier; each unit with its hash; the fates.

    And the driver had no job for it.
    """
    found, but = [], OF_A_RUN if declared == ONE_OUTPUT else OF_A_RUN + OF_ITS_PLACE
    for bytes_in_driver in (NEVER, ALWAYS):
        platform, plans = new_platform(declared), Plans(spark)
        taken_in(platform, monkeypatch, bytes_in_driver)
        assert jobs_of(plans, 2 if declared == ONE_OUTPUT else 1) == (4 if bytes_in_driver == NEVER else 0)
        log = [multiset(platform.sql(query)) for query in (UNITS, FATES)]
        found.append([rows(platform, but), *log])

    assert found[0] == found[1]
    assert found[0][2].total() == 4
    events = settings.data_dir("shop") / "events"
    for version in range(commit.latest(events) + 1):  # of what the driver has taken in
        kinds = [file.partition["oo_kind"] for file in opening.added(events, version)]
        assert len(kinds) == len(set(kinds))


def test_a_line_that_is_not_plain_brings_its_batch_to_spark(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """Only that one: the batches before and after it are the driver's."""
    platform, plans = new_platform(ONE_OUTPUT), Plans(spark)
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=ALWAYS)
    for number, records in enumerate(shop_oracle.sales(60, 3)):
        platform.put("shop", f"sales-{number}.jsonl", [*records, *(['{"id":"odd"}'] if number == 1 else [])])
    platform.run("shop")

    assert jobs_of(plans) == 1
    assert platform.sql("SELECT sum(invalid) AS n FROM onlyonce.batches")["n"][0] == 1


@pytest.mark.whole
@pytest.mark.parametrize(("first", "again"), [(NEVER, ALWAYS), (ALWAYS, NEVER)])
def test_a_replay_may_go_the_other_way(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, first: str, again: str
) -> None:
    """Its units are compared with those in the log, and are the same."""
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=first)
    files = shop_oracle.sales(240, 2)
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number:04}.jsonl", records)
    if first == NEVER:  # by a task, which is another process
        platform.run_killed("receive-unit-after-commit", "shop")
        assert platform.struck("receive-unit-after-commit")
    else:
        assert ended_at(platform, monkeypatch, "receive-unit-after-commit")

    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=again)
    platform.run("shop")
    forget_last_commit("receive")
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=first)
    platform.run("shop", "--close")

    check(platform, files)
