"""The two pipelines that ship, fed by each other source, against the plain batch computation of tests/oracle.py."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests import oracle
from tests.spark.test_reference import KEYS, same
from tests.support import source_variants
from tests.support.platform import Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = ["receive-after-begin", "receive-after-delta", "output-after-begin"]


def check(
    platform: Platform, kind: str, name: str, *, duplicates: float, records: int, kills: tuple[str, ...] = ()
) -> None:
    """Feed, run, killed here and there, and compare with the batch over the rows in time; the log is conserved."""
    files = source_variants.feed(kind, name, duplicates=duplicates, records=records, files=9)
    for point in kills:
        code, output = platform.run_killed(point, name, "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run(name, "--close")
    batches = source_variants.cut(kind, name, files)
    assert len(batches) > 2
    log = platform.sql("SELECT * FROM onlyonce.conservation")
    assert log["conserved"].all()
    of, lateness, window = (oracle.FLIGHTS, "2h", "1h") if name == "flights" else (oracle.USER_COUNTS, "2min", "1min")
    found = oracle.distinct(files, of)
    fates = oracle.lateness_by_cut(batches, lateness, window, of=of)
    assert len(fates) == len(found)
    in_time = oracle.only(found, fates[~fates["late"]], of)
    received = log[log["stage"] == "receive"]
    assert received["in"].sum() == sum(path.read_bytes().count(b"\n") for path in files)
    assert received["kept"].sum() == len(found)
    if name == "user_counts":
        same(oracle.counts_per_user(in_time), platform.table("user_counts/per_user"), [*KEYS, "user", "count"], [])
        of_all = platform.sql("SELECT * FROM results.count_of_all")
        same(oracle.count_of_all(in_time), of_all, [*KEYS, "count", "users"], [])
        return
    exact = ["flights", "delay_minutes"]
    same(
        oracle.flights_per_carrier(in_time),
        platform.table("flights/per_carrier"),
        [*KEYS, "carrier", *exact],
        ["mean_delay"],
    )
    per_hour = platform.sql("SELECT * FROM results.flights_per_hour")
    same(oracle.flights_per_hour(in_time), per_hour, [*KEYS, *exact], ["mean_delay"])


@pytest.mark.parametrize("name", ["flights", "user_counts"])
@pytest.mark.parametrize("kind", source_variants.KINDS)
@pytest.mark.parametrize("how", ["undisturbed", "duplicates", "kills"])
def test_both_pipelines_over(
    how: str, kind: str, name: str, new_platform: Callable[..., Platform], spark: object
) -> None:
    """Undisturbed, with re-deliveries, and with kills too: the batch over the rows in time."""
    platform = new_platform(f"tests/support/variant_{kind}.py")
    kills = tuple(KILLS) if how == "kills" else ()
    check(platform, kind, name, duplicates=0.0 if how == "undisturbed" else 0.1, records=3000, kills=kills)
