"""The full matrix on Spark: both pipelines that ship, every fail-point that a run of them passes, its first, second and
last occurrence, and a second kill at a random point while the first one is recovered from.

Slow, all of it: `make test-faults`. ONLYONCE_FAULT_SAMPLE=n takes n cases by chance; the seed is printed
(ONLYONCE_FAULT_SEED plays the same again). What a run passes is found by recording one.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from jobs import finalize, settings
from jobs.feed.deliver import feed
from jobs.pipelines import FLIGHTS, USER_COUNTS
from tests import oracle
from tests.fault import ledger
from tests.spark.test_reference import KEYS, cut, plain
from tests.support.platform import Platform, multiset

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(6 * 3600)]

Pairs = list[tuple[Counter[Any], Counter[Any]]]


def fill(pipeline: str) -> list[Path]:
    """A small input with duplicates and late rows, in three batches."""
    size = {"records": 1200, "files": 12} if pipeline == "flights" else {"records": 900}
    feed(pipeline, settings.inbox(pipeline), duplicates=0.1, **size)
    return sorted(settings.inbox(pipeline).glob("*.jsonl"))


def final_rows(platform: Platform) -> pd.DataFrame:
    """The rows of `carrier_files`, read as the README tells readers to: once finalized, the files with final names."""
    finalize.main([])
    there = platform.sql("SELECT place, name FROM onlyonce.files WHERE state = 'final'")
    paths = [settings.files_dir() / place / name for place, name in zip(there.place, there.name, strict=True)]
    return pd.DataFrame([json.loads(line) for path in paths for line in path.read_text().splitlines()])


def ids_of(frame: pd.DataFrame, of: oracle.Input) -> Counter[Any]:
    """The ids of records as a multiset, their time as an instant whether it comes as text or not."""
    at = pd.to_datetime(frame[of.event_time], utc=True, format="ISO8601").dt.as_unit("us")
    return multiset(frame.assign(**{of.event_time: at}), *of.record_id)


def results(platform: Platform, pipeline: str, files: list[Path]) -> Pairs:
    """(wanted, found) of what was kept and of each output."""
    if pipeline == "flights":
        of, declared, lateness, size = oracle.FLIGHTS, FLIGHTS, "2h", "1h"
    else:
        of, declared, lateness, size = oracle.USER_COUNTS, USER_COUNTS, "2min", "1min"
    records = oracle.distinct(files, of)
    fates = oracle.lateness_by_cut(cut(files, declared.source.max_files_a_batch), lateness, size, of=of)  # type: ignore[union-attr]
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


def passes(platform: Platform, pipeline: str) -> dict[str, int]:
    """How often an undisturbed run passes each fail-point."""
    passed, code, output = platform.passes(pipeline, "--close")
    assert code == 0, output[-3000:]
    return dict(sorted(Counter(passed).items()))


@pytest.mark.parametrize("pipeline", ["user_counts", "flights"])
def test_no_kill_at_any_point_shows(new_platform: Callable[..., Platform], spark: object, pipeline: str) -> None:
    """Each point, first, second and last pass, then another kill in the recovery: the results are the oracle's."""
    first = new_platform("jobs/pipelines.py")
    fill(pipeline)
    passed = passes(first, pipeline)
    chance = random.Random(ledger.chosen_seed())
    print(f"seed {ledger.chosen_seed()}, passes {passed}")
    cases = [(point, nth) for point, count in passed.items() for nth in sorted({1, min(2, count), count})]
    chance.shuffle(cases)

    for point, nth in cases[: int(os.environ.get("ONLYONCE_FAULT_SAMPLE", len(cases)))]:
        platform = new_platform("jobs/pipelines.py")
        files = fill(pipeline)
        code, output = platform.run_killed(point, pipeline, "--close", nth=nth)
        assert code == -signal.SIGKILL, f"{point} {nth}: exit {code}\n{output[-3000:]}"
        again = chance.choice(sorted(set(passed) - {point}))
        code, output = platform.run_killed(again, pipeline, "--close")
        assert code in (0, -signal.SIGKILL), f"{point} {nth}, then {again}: exit {code}\n{output[-3000:]}"
        platform.run(pipeline, "--close")
        found = results(platform, pipeline, files)
        harm = ledger.compared(f"spark {pipeline}", point, nth, found, seed=ledger.chosen_seed())
        assert harm == (0, 0), f"{point} {nth}, then {again}"
        assert platform.sql("SELECT bool_and(conserved) AS ok FROM onlyonce.conservation")["ok"][0]
