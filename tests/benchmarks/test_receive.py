"""What exactly once costs receive: all ways on the same files, in one session, batch by batch in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks import deliveries, measure, page, ways
from tests.benchmarks.plot import bars
from tests.support.platform import Platform, Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7200)]

RECORDS = int(os.environ.get("ONLYONCE_BENCH_RECORDS", "8000000"))
BATCHES = int(os.environ.get("ONLYONCE_BENCH_BATCHES", "16"))
SEED = 20260301
WAYS = os.environ.get("ONLYONCE_BENCH_WAYS", "").split()
"""Some of the ways alone, for whoever looks at one of them: what is found is shown, and not kept."""
TURN = 4
"""So many batches of one way, then those of the next: what disturbs the machine for a while disturbs all of them."""
TARGETS = {
    "exactly_once": {"append": 0.92, "bare_quick": 0.85, "merge": 1.8, "drop_duplicates": 3.5, "row_per_record": 18},
    "at_least_once": {"append": 0.95},
    "position_ids": {"append": 0.95},
}


def test_receive(
    new_platform: Callable[..., Platform], server: Server, spark: SparkSession, clock: measure.Clock
) -> None:
    """Every way gets the same files; those that promise no duplicates give the multiset of an exact offline dedup."""
    home = new_platform("tests/benchmarks/pipelines.py").home
    found = deliveries.Input(RECORDS, BATCHES, SEED)
    (home / "input").mkdir()
    files = found.make(spark, home / "input")
    compared, skipped = _ways(spark, home)
    used = _play(compared, files, clock, server)
    seconds = {name: clock.seconds[way.query][1:] for name, way in compared.items()}
    if not WAYS:
        alone = ways.row_per_record(spark, home)
        _put(alone, files[-1])
        alone.drain()
        clock.settle()
        seconds["row_per_record"] = clock.seconds[alone.query]

    exact = deliveries.read(spark, files).dropDuplicates(["id"]).cache()
    for name in compared.keys() & {"exactly_once", "drop_duplicates", "merge"}:
        assert deliveries.differing(spark, compared[name].result(), exact) == 0, name
    unique = exact.count()
    exact.unpersist()
    listing = {name: way.listing_seconds() / BATCHES for name, way in compared.items() if isinstance(way, ways.Ours)}
    rates = {name: round(found.in_batch / (measure.median(s) + listing.get(name, 0))) for name, s in seconds.items()}
    millions = (BATCHES - TURN) * found.in_batch / 1e6
    by_process = {
        name: {kind: round(s / millions, 2) for kind, s in sorted(each.items())} for name, each in used.items()
    }
    _show(rates, skipped, by_process)
    if WAYS:
        return
    measure.keep(
        "receive", records_per_second=rates, skipped=skipped, batch_seconds=seconds, seed=SEED,
        cpu_seconds_a_million={name: round(sum(each.values()) / millions, 1) for name, each in used.items()}, cpu_by_process_a_million=by_process,
        listing_seconds_a_batch={name: round(s, 4) for name, s in listing.items()},
        input={"lines": found.in_batch * BATCHES, "batches": BATCHES, "records": unique,
               "bytes": sum(f.stat().st_size for batch in files for f in batch)},
        parts_ms={name: clock.parts[way.query][1:] for name, way in compared.items()},
        **measure.circumstances(),
    )  # fmt: skip
    bars(
        rates,
        page.DOCS / "receive.svg",
        f"receive, {RECORDS:,} lines of JSON, 2 cores, {date.today()}: "
        f"{rates['exactly_once'] / rates['append']:.2f} of an append",
    )


def _ways(spark: SparkSession, home: Path) -> tuple[dict[str, ways.Way], dict[str, str]]:
    compared: dict[str, ways.Way] = {
        "append": ways.append(spark, home),
        "bare_quick": ways.quick(spark, home),
        "exactly_once": ways.Ours(spark, "exactly"),
    }
    compared["position_ids"] = ways.Ours(spark, "position", record_id=())
    skipped: dict[str, str] = {}
    mode = ways.known_mode("at_least_once")
    if mode is None:
        skipped["at_least_once"] = "not built yet: a declaration has no mode"
    else:
        compared["at_least_once"] = ways.Ours(spark, "at_least", **mode)
    compared |= {"merge": ways.merge(spark, home), "drop_duplicates": ways.drop_duplicates(spark, home)}
    return {name: way for name, way in compared.items() if name in (WAYS or compared)}, skipped


def _play(
    compared: dict[str, ways.Way], files: list[list[Path]], clock: measure.Clock, server: Server
) -> dict[str, dict[str, float]]:
    """Gives the processor seconds of each way by process, the first turn left out."""
    used = {name: dict.fromkeys(measure.cpu_by_process(server), 0.0) for name in compared}
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(files) * len(compared))
        for start in range(0, len(files), TURN):
            turn = files[start : start + TURN]
            for name, way in compared.items():
                bar.update(task, description=f"{name}: batches {start} to {start + len(turn) - 1}")
                _put(way, *turn)
                before = measure.cpu_by_process(server)
                way.drain()
                clock.settle()
                for kind, seconds in measure.cpu_by_process(server).items():
                    used[name][kind] += seconds - before[kind] if start else 0
                bar.advance(task, len(turn))
    return used


def _put(way: ways.Way, *batches: list[Path]) -> None:
    way.inbox.mkdir(parents=True, exist_ok=True)
    for file in (file for batch in batches for file in batch):
        (way.inbox / file.name).hardlink_to(file)


def _show(rates: dict[str, int], skipped: dict[str, str], used: dict[str, dict[str, float]]) -> None:
    title = f"receive: {RECORDS:,} lines in {BATCHES} batches, medians of batches after the first"
    shown = Table("way", "records/s", "of append", "processor s for a million", "targets", title=title)
    for name, rate in rates.items():
        targets = [
            f"{rate / rates[other]:.2f} of {other}, at least {least}: "
            f"{'met' if rate >= least * rates[other] else 'MISSED'}"
            for other, least in TARGETS.get(name, {}).items()
            if other in rates
        ]
        shown.add_row(
            name,
            f"{rate:,}",
            f"{rate / rates['append']:.2f}" if "append" in rates else "",
            _told(used.get(name, {})),
            "\n".join(targets),
        )
    for name, why in skipped.items():
        shown.add_row(name, "skipped", "", "", why)
    Console(width=130).print(shown)


def _told(used: dict[str, float]) -> str:
    return ", ".join(f"{kind} {seconds}" for kind, seconds in used.items())
