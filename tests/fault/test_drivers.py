"""More than one driver on one checkpoint, and what a kill makes begin again."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from onlyonce import settings
from tests.fault.test_kills import SUPERSEDED, put_all
from tests.support import shop_oracle
from tests.support.check_shop import check
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

FILES = shop_oracle.sales(240, 3)


def zombie_commits(number: int) -> None:
    """What a fenced driver that wakes in Spark's own commit leaves in the checkpoint of receive."""
    folder = settings.data_dir("shop") / "checkpoints" / "receive" / "1" / "commits"
    folder.mkdir(exist_ok=True)
    (folder / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_zombie_that_writes_into_the_checkpoint_does_not_stop_the_live_one(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark finds a file of its next step there already and stops the query: it starts again under the same epoch,
    in the same run, and the results are those of one driver."""
    put_all(platform, FILES)
    struck: list[str] = []

    def passing(name: str) -> None:
        if name == "receive-after-end" and not struck:
            struck.append(name)
            zombie_commits(0)

    monkeypatch.setattr("onlyonce.receive.loop.passing", passing)

    platform.run("shop", "--close")

    assert struck
    epochs = platform.sql("SELECT DISTINCT epoch FROM onlyonce.batches WHERE query = 'receive'")
    assert epochs["epoch"].tolist() == [1]
    check(platform, FILES)


def begun(platform: Platform) -> dict[Any, tuple[Any, ...]]:
    """Each batch with its state and who had it last."""
    rows = platform.sql(
        "SELECT incarnation, batch, state, epoch, run_id, committed_at::text AS at FROM onlyonce.batches"
    )
    return {(r.incarnation, r.batch): (r.state, r.epoch, r.run_id, r.at) for r in rows.itertuples()}


@pytest.mark.parametrize(
    "point, nth",
    [("receive-after-delta", 2), pytest.param("output-before-end", 1, marks=pytest.mark.slow)],
)
def test_after_a_kill_at_most_one_batch_of_each_query_begins_again(
    platform: Platform, spark: object, point: str, nth: int
) -> None:
    """By the log: what was committed is not touched, and of each query one batch at most is taken over."""
    put_all(platform, FILES)
    code, output = platform.run_killed(point, "shop", "--close", nth=nth)
    assert code == -signal.SIGKILL, output[-3000:]
    before = begun(platform)

    platform.run("shop", "--close")

    after = begun(platform)
    again = [key for key, was in before.items() if after[key] != was]
    assert [before[key][0] for key in again] == ["begun"]
    assert len(after) > len(before)
    check(platform, FILES)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(5))
def test_drivers_started_at_the_same_instant_make_one_result(platform: Platform, spark: object, attempt: int) -> None:
    """Three at once, five times over: each ends, is fenced, or asks to be run again; each record and effect once."""
    put_all(platform, FILES)

    drivers = [platform.start("shop", "--close") for _ in range(3)]
    outputs = [driver.communicate(timeout=JOB_TIMEOUT)[0] for driver in drivers]
    platform.run("shop", "--close")

    codes = {driver.returncode for driver in drivers}
    assert codes <= {0, SUPERSEDED, 75}, [output[-2000:] for output in outputs]
    check(platform, FILES)
