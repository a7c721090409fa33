"""The full matrix on Spark: both pipelines that ship, every fail-point that a run of them passes, its first, second and
last occurrence.

The kills are dealt out in chains: each but the first of a chain strikes the recovery from the one before.

Slow, all of it, and in parts: `make test-matrix` goes on after a break. What a run passes is found by recording one.
The batches of `flights` are taken in by Spark's tasks, those of `user_counts` by the driver.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce import settings
from onlyonce.local.feed import feed_files
from onlyonce.sinks.files import finalize
from onlyonce.testing import crash_results
from onlyonce.testing.crash_results import Chain, Queue, Strike
from tests import oracle
from tests.fault import ledger
from tests.fault.parts import Parts
from tests.spark.run.test_reference import KEYS, cut, plain
from tests.support.platform import Platform, multiset
from tests.support.warm_drivers import WarmDrivers

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(6 * 3600)]

Pairs = list[tuple[Counter[Any], Counter[Any]]]
NewPlatform = Callable[..., Platform]

CHAIN = 6
"""How many kills one after the other in one platform."""


def fill(pipeline: str) -> list[Path]:
    """A small input with duplicates and late rows, in three batches."""
    size = {"records": 1200, "files": 12} if pipeline == "flights" else {"records": 900}
    feed_files(pipeline, settings.inbox(pipeline), duplicates=0.1, **size)
    return sorted(settings.inbox(pipeline).glob("*.jsonl"))


def final_rows(platform: Platform) -> pd.DataFrame:
    """The rows of `carrier_files`, read as the README tells readers to: once finalized, the files with final names."""
    finalize.main([])
    there = platform.sql("SELECT place, name FROM onlyonce.output_files WHERE state = 'final'")
    paths = [settings.files_dir() / place / name for place, name in zip(there.place, there.name, strict=True)]
    return pd.DataFrame([json.loads(line) for path in paths for line in path.read_text().splitlines()])


def ids_of(frame: pd.DataFrame, of: oracle.Input) -> Counter[Any]:
    """The ids of records as a multiset, their time as an instant whether it comes as text or not."""
    at = pd.to_datetime(frame[of.event_time], utc=True, format="ISO8601").dt.as_unit("us")
    return multiset(frame.assign(**{of.event_time: at}), *of.record_id)


def results(platform: Platform, pipeline: str, files: list[Path]) -> Pairs:
    """(wanted, found) of what was kept and of each output."""
    if pipeline == "flights":
        of, declared, watermark_delay, size = oracle.FLIGHTS, FLIGHTS, "2h", "1h"
    else:
        of, declared, watermark_delay, size = oracle.USER_COUNTS, USER_COUNTS, "2min", "1min"
    records = oracle.distinct(files, of)
    fates = oracle.fates_by_cut(cut(files, declared.source.max_files_a_batch), watermark_delay, size, of=of)  # type: ignore[arg-type]
    in_time = oracle.only(records, fates[~fates["late"]], of)
    if pipeline == "flights":
        exact = ["flights", "delay_minutes"]
        by_carrier = oracle.flights_per_carrier(in_time)
        outputs = [
            (by_carrier, platform.table("flights/per_carrier"), [*KEYS, "carrier", *exact]),
            (by_carrier, final_rows(platform), [*KEYS, "carrier", *exact]),
            (oracle.flights_per_hour(in_time), platform.sql("SELECT * FROM results.flights_per_hour"), [*KEYS, *exact]),
        ]
    else:
        outputs = [
            (oracle.counts_per_user(in_time), platform.table("user_counts/per_user"), [*KEYS, "user", "count"]),
            (
                oracle.count_of_all(in_time),
                platform.sql("SELECT * FROM results.count_of_all"),
                [*KEYS, "count", "users"],
            ),
        ]
    events = platform.events(pipeline)
    kept = [(ids_of(records, of), ids_of(events[events["oo_kind"] == "kept"], of))]
    return kept + [(multiset(plain(w), *names), multiset(plain(f), *names)) for w, f, names in outputs]


def wanted_strikes(passes: list[str]) -> list[Strike]:
    """First, second and last pass of each point, in the order of the run."""
    counts = Counter(passes).items()
    return crash_results.named_points(
        passes, [f"{point}:{nth}" for point, count in counts for nth in sorted({1, min(2, count), count})]
    )


def played(drivers: WarmDrivers, platform: Platform, pipeline: str, passes: list[str], chain: list[Strike]) -> Chain:
    """Kill one run after the other; the last one goes to its end, and what is there is the oracle's."""
    files = fill(pipeline)
    struck: list[Strike] = []
    for strike in chain:
        nth = crash_results.nth_from(passes, struck[-1] if struck else None, strike)
        code, output = drivers.run(platform, strike.point, nth, pipeline, "--close")
        if code == 0:
            break
        assert code == -signal.SIGKILL, f"{strike}: exit {code}\n{output[-3000:]}"
        struck.append(strike)
    platform.run(pipeline, "--close")
    for number, (wanted, found) in enumerate(results(platform, pipeline, files)):
        assert wanted == found, f"result {number} after {[str(s) for s in struck]}"
    assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
    return Chain(tuple(struck), tuple(chain[len(struck) :]))


def tell(pipeline: str, parts: Parts, strikes: list[Strike]) -> None:
    """The ledger of all parts so far: each kill, and how many of how many."""
    said = {(one["point"], one["nth"]): one["said"] for one in parts.played if "said" in one}
    struck = [key for key, word in said.items() if word == "held"]
    failed = [key for key, word in said.items() if word == "failed"]
    for point, nth in struck:
        ledger.record(f"spark {pipeline}", point, nth, lost=0, doubled=0)
    points = {strike.point for strike in strikes}
    counts = {
        "kills": len(strikes), "kills_held": len(struck), "kills_failed": len(failed),
        "kills_not_reached": len(said) - len(struck) - len(failed),
        "points": len(points), "points_held": len(points & {point for point, _ in struck}),
    }  # fmt: skip
    ledger.fact("matrix_complete", {pipeline: counts | {"complete": len(said) >= len(strikes)}})


@pytest.mark.parametrize("pipeline", ["user_counts", "flights"])
def test_no_kill_at_any_point_shows(
    new_platform: NewPlatform, monkeypatch: pytest.MonkeyPatch, spark: object, pipeline: str
) -> None:
    """Each point, first, second and last pass, alone or in a recovery: the results are the oracle's."""
    parts = Parts(pipeline)

    def platform() -> Platform:
        made = new_platform("jobs/pipelines.py")
        if pipeline == "flights":
            made.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES="0")
        return made

    with WarmDrivers() as drivers:
        if not parts.played:
            first = platform()
            fill(pipeline)
            passed, code, output = first.passes(pipeline, "--close")
            assert code == 0, output[-3000:]
            parts.add({"passes": passed})
        passes = parts.played[0]["passes"]
        strikes = wanted_strikes(passes)
        judged = {(one["point"], one["nth"]) for one in parts.played[1:]}
        queue = Queue(crash_results.dealt_points([s for s in strikes if (s.point, s.nth) not in judged], CHAIN))
        try:
            while queue.chains and not parts.is_over():
                chain, before = queue.chains.pop(0), len(queue.verdicts)
                try:
                    found = played(drivers, platform(), pipeline, passes, chain)
                except AssertionError as error:
                    for strike in chain:
                        parts.add(
                            {"point": strike.point, "nth": strike.nth, "said": "failed", "why": str(error)[-3000:]}
                        )
                    continue
                queue.judge(len(parts.played), found, passes, go_on=True)
                for verdict in queue.verdicts[before:]:
                    parts.add({"point": verdict.strike.point, "nth": verdict.strike.nth, "said": verdict.said})
                if not found.struck:  # the run passed the point less often than the recorded one
                    parts.add({"point": chain[0].point, "nth": chain[0].nth, "said": "not reached"})
                print(f"{pipeline}: {len(parts.played) - 1} of {len(strikes)} kills", flush=True)
        finally:
            tell(pipeline, parts, strikes)
    assert [one for one in parts.played if one.get("said") == "failed"] == []
