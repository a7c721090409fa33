"""A replay that is cut differently: other shuffle partitions, adaptive execution off, another split of the files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from tests.fault import ledger
from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.check_shop import check, pairs
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault]

OTHER_CUT = {
    "spark.sql.shuffle.partitions": "5", "spark.sql.adaptive.enabled": "false", "spark.sql.files.maxPartitionBytes": "2000",
}  # fmt: skip


@pytest.fixture
def cut_otherwise(spark: Any) -> Any:
    """Sets the settings that move rows between partitions; undone at the end."""
    before = {key: spark.conf.get(key) for key in OTHER_CUT}
    yield lambda: [spark.conf.set(key, value) for key, value in OTHER_CUT.items()]
    for key, value in before.items():
        spark.conf.set(key, value)


def forget_last_commit(query: str) -> Path:
    """The checkpoint as a driver leaves it that dies between the end of the batch and Spark's own commit."""
    commits = settings.data_dir("shop") / "checkpoints" / query / "1" / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    last.unlink()
    return last


@pytest.mark.whole
def test_replay_of_a_written_batch_runs_its_plan_and_writes_nothing(
    platform: Platform, spark: object, cut_otherwise: Any
) -> None:
    """With commits/N gone and other settings the last batch of each query runs again, is compared, and adds nothing;
    the stateful queries live on."""
    files = shop_oracle.sales(240, 3)
    put_all(platform, files[:2])
    platform.run("shop")
    before = platform.sql("SELECT unique_id, content_hash, committed_at FROM onlyonce.commits ORDER BY 1")
    for query in ("receive", "per_shop", "balance"):
        forget_last_commit(query)
    cut_otherwise()

    platform.run("shop")
    after = platform.sql("SELECT unique_id, content_hash, committed_at FROM onlyonce.commits ORDER BY 1")
    platform.put("shop", "sales-0002.jsonl", files[2])
    platform.run("shop", "--close")

    assert before.equals(after)
    ledger.compared("spark: replay", "commits of the last batch lost", 1, pairs(platform, files))
    check(platform, files)


@pytest.mark.parametrize(
    "point", [pytest.param("receive-unit-before-claim", marks=pytest.mark.slow), "postgres-unit-before-claim"]
)
def test_half_written_batch_is_finished_under_another_cut(
    platform: Platform, spark: object, cut_otherwise: Any, point: str
) -> None:
    """Some partitions of a batch are committed, then all that moves rows changes: nothing is lost, nothing twice."""
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)
    platform.run_killed(point, "shop", "--close", nth=2)
    assert platform.struck(point) == 2
    cut_otherwise()

    platform.run("shop", "--close")

    ledger.compared("spark: replay", f"{point}, then another cut", 2, pairs(platform, files))
    check(platform, files)


def test_the_naive_recipe_loses_and_doubles(spark: Any) -> None:
    """Control: (batch, partition) as the unique id, the well-known recipe, loses rows and doubles rows under the
    same change; the totals need not even tell."""
    rows = spark.range(0, 1000, 1, 4)
    target: list[tuple[str, list[int]]] = []
    committed: dict[str, list[int]] = {}

    def attempt(partitions: int, die_after: int) -> None:
        cut = rows.repartition(partitions, "id").rdd.glom().collect()
        for number, part in enumerate(cut):
            unique_id = f"0/{number}"
            if unique_id not in committed:
                committed[unique_id] = [row.id for row in part]
                target.append((unique_id, committed[unique_id]))
            if number == die_after:
                return

    attempt(2, die_after=0)
    attempt(3, die_after=-1)

    seen = Counter(n for _, part in target for n in part)
    lost = set(range(1000)) - seen.keys()
    doubled = {n for n, times in seen.items() if times > 1}
    assert lost
    assert doubled
