"""A batch that was killed half written and whose checkpoint is lost then: a new incarnation withdraws or finishes it, nothing
is twice."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from onlyonce.run import reset
from tests.spark.run.test_incarnations import checkpoint, lost
from tests.spark.sinks.test_sinks import found, sessions, sliding
from tests.support import shop_oracle
from tests.support.check_shop import check
from tests.support.platform import Platform, Server, multiset

pytestmark = pytest.mark.spark


def killed(platform: Platform, query: str, point: str, nth: int) -> None:
    """A run is killed, its query's checkpoint lost, a new incarnation asked for."""
    code, output = platform.run_killed(point, "shop", nth=nth)
    assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    [begun] = platform.sql("SELECT incarnation FROM onlyonce_private.batches WHERE state = 'begun'").incarnation
    assert begun.startswith(f"shop/{query}/")
    lost(checkpoint(query, int(begun.rsplit("/", 1)[1])))
    platform.end_sessions()
    reset.new(f"shop/{query}", yes=True)


@pytest.mark.whole
def test_a_half_written_batch_without_a_checkpoint_is_withdrawn_or_finished(platform: Platform, spark: object) -> None:
    """One unit of two of an increment; an append to Delta with one unit of two of its chain; a reference unit whose rows never
    came.

    The increment's batch reads records and closes the windows of the batch before it, after which the driver was
    killed. Its own windows are still open.
    """
    files = shop_oracle.sales(420, 6)
    kills = (
        ("balance", "postgres-unit-after-commit", 3),
        ("per_shop", "postgres-unit-after-commit", 1),
        ("per_shop", "delta-before-write", 1),
    )
    for number, (query, point, nth) in enumerate(kills):
        platform.put("shop", f"{2 * number}.jsonl", files[2 * number])
        if query == "balance":
            assert platform.run_killed("output-after-end", "shop", nth=3)[0] == -signal.SIGKILL
            platform.end_sessions()
        else:
            platform.run("shop")
        platform.put("shop", f"{2 * number + 1}.jsonl", files[2 * number + 1])
        killed(platform, query, point, nth)

    platform.run("shop", "--close")

    check(platform, files)


@pytest.mark.slow
def test_a_half_written_batch_of_any_kind_of_output_is_finished(
    new_platform: Callable[..., Platform], server: Server, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows as they come, sliding windows and sessions, in a first incarnation and in a later one, are as if nothing had
    been."""
    monkeypatch.setenv("TEST_OTHER_DATABASE", server.url("writer", server.new_database()))
    platform = new_platform("tests/support/kinds.py")
    kills = (
        ("plain", "postgres-unit-after-commit", 1), ("sliding", "delta-after-write", 3), ("session", "delta-after-write", 4),
        ("session", "delta-after-write", 4), ("plain", "postgres-unit-after-commit", 1), ("totals", "delta-after-write", 1),
    )  # fmt: skip
    files = shop_oracle.sales(840, 2 * len(kills))
    for number, (query, point, nth) in enumerate(kills):
        platform.put("shop", f"{2 * number}.jsonl", files[2 * number])
        platform.run("shop")
        platform.put("shop", f"{2 * number + 1}.jsonl", files[2 * number + 1])
        killed(platform, query, point, nth)

    platform.run("shop", "--close")

    records = shop_oracle.distinct(files)
    plain = platform.sql("SELECT id, shop, cents FROM results.plain")
    assert multiset(records, "id", "shop", "cents") == multiset(plain, "id", "shop", "cents")
    assert sliding(records, in_time=True) == found(platform.table("shop/sliding"))
    assert sessions(records, in_time=True) == found(platform.table("shop/session"))
    totals = platform.table("shop/totals")
    assert multiset(shop_oracle.balance(records), "shop", "cents", "sales") == multiset(
        totals, "shop", "cents", "sales"
    )
