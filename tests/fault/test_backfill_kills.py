"""A backfill killed at each of its steps, and beside the stream: each sink shows a whole generation at any time."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.spark.outputs.test_backfill import FIRST, LAST, seen, wanted
from tests.support import shop_oracle
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault]

POINTS = [
    "backfill-after-begin", "delta-before-replace", "delta-after-replace", "postgres-unit-after-delete",
    "postgres-unit-before-commit", "backfill-before-end", "backfill-after-end",
]  # fmt: skip
ASKED = ("shop", "--output", "per_shop", "--from", FIRST, "--to", LAST)


@pytest.mark.slow
def test_a_killed_backfill_shows_each_sink_old_or_new_and_the_next_one_ends_it(
    platform: Platform, spark: object
) -> None:
    """After each kill a reader sees a sink as it was or as it will be, never half; the same command then ends it."""
    files = shop_oracle.sales(240, 2)
    for number, records in enumerate(files):
        platform.put("shop", f"{number}.jsonl", records)
    platform.run("shop", "--close")
    rows = shop_oracle.distinct(files)
    old, new = wanted(rows[~rows["late"]]), wanted(rows)
    assert old != new

    for point in POINTS:
        code, output = platform.run_killed(point, *ASKED, job="backfill")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
        delta, postgres = seen(platform)
        assert delta in (old[0], new[0])
        assert postgres in (old[1], new[1])
    platform.backfill(*ASKED)

    assert seen(platform) == new
    states = platform.sql("SELECT state FROM onlyonce.backfills ORDER BY batch")["state"].tolist()
    assert states == ["replaced"] * (len(POINTS) - 1) + ["committed"] * 2


@pytest.mark.whole
def test_a_backfill_and_the_stream_do_not_starve_each_other(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Both write the same date at the same time, twice the same backfill at once among them; all end, and all is
    right."""
    platform = new_platform()
    files = shop_oracle.sales(400, 5)
    for number, records in enumerate(files[:2]):
        platform.put("shop", f"{number}.jsonl", records)
    platform.run("shop")
    closed = ("shop", "--output", "per_shop", "--from", FIRST, "--to", "2026-01-01T00:02Z")
    for number, records in enumerate(files[2:], start=2):
        platform.put("shop", f"{number}.jsonl", records)

    stream = platform.start("shop", "--close")
    twins = [platform.start(*closed, job="backfill") for _ in range(2)]
    outputs = [process.communicate(timeout=2 * JOB_TIMEOUT)[0] for process in (stream, *twins)]

    assert stream.returncode == 0, outputs[0][-3000:]
    assert {twin.returncode for twin in twins} <= {0, 69}, [o[-3000:] for o in outputs[1:]]
    assert 0 in {twin.returncode for twin in twins}
    platform.backfill(*ASKED)
    assert seen(platform) == wanted(shop_oracle.distinct(files))
