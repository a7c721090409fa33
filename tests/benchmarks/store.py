"""What `test_store` measures, in a process of its own: a session that has data in a store has other jars.

Prints one line of JSON.

    python -m tests.benchmarks.store RECORDS BATCHES

The variables lead to the store (`S3.environment`, ONLYONCE_DATA) and to an empty database.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from onlyonce import environment, settings
from onlyonce.commitlog.units import Authorities
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.engine import session
from onlyonce.tables import claims, stores
from tests.benchmarks import deliveries, measure, moved_blocks, ways, whole
from tests.benchmarks.test_latency import put_ten
from tests.support.s3 import S3

SEED = 20261126

TURN = 4
FEW, MANY = 1, 9
"""Batches of ten records in one drain and in another: their difference is what each of them costs, without the start of
the query."""
DELAY_MS = 20
ROUNDS = 3


class BareOnStore(ways.Bare):
    """A bare query whose table and checkpoint are in the store, as on a cluster without a disk of its own."""

    @property
    def target(self) -> str:
        """See Bare."""
        return f"{settings.data_root()}/bare/{self.query}/table"

    @property
    def checkpoint(self) -> str:
        """See Bare."""
        return f"{settings.data_root()}/bare/{self.query}/checkpoint"


@contextmanager
def on_disk(spark: SparkSession) -> Iterator[None]:
    """For ways with all they have on this disk: a session for a store writes checkpoints as only stores can."""
    of_store = spark.conf.get(stores.CHECKPOINTS)
    spark.conf.set(stores.CHECKPOINTS, stores.ON_DISK)
    try:
        with environment.within({"ONLYONCE_DATA": str(settings.home())}):
            yield
    finally:
        spark.conf.set(stores.CHECKPOINTS, of_store)


def append(spark: SparkSession, home: Path, query: str) -> BareOnStore:
    """Spark's own append to the store."""

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("delta").mode("append").save(way.target)

    way = BareOnStore(spark, query, home, write)
    return way


def throughput(spark: SparkSession, clock: measure.Clock, files: list[list[Path]]) -> dict[str, object]:
    """Records a second of each way, in turn, in the medians of batches after the first; all kept the same records."""
    home = settings.home()
    compared: dict[str, ways.Way] = {
        "append": append(spark, home, "append_store"), "exactly_once": ways.Ours(spark, "exactly_store"),
        "append_on_disk": ways.append(spark, home, "append_disk"), "exactly_once_on_disk": ways.Ours(spark, "exactly_disk"),
    }  # fmt: skip
    for start in range(0, len(files), TURN):
        for name, way in compared.items():
            _put(way.inbox, files[start : start + TURN])
            with on_disk(spark) if name.endswith("_disk") else nullcontext():
                way.drain()
            clock.settle()
    exact = deliveries.read(spark, files).dropDuplicates(["id"]).cache()
    assert deliveries.differing(spark, compared["exactly_once"].result(), exact) == 0
    lines = deliveries.read(spark, files).count() / len(files)
    seconds = {name: clock.seconds[way.query][1:] for name, way in compared.items()}
    return {
        "batch_seconds": seconds,
        "records_per_second": {name: round(lines / measure.median(each)) for name, each in seconds.items()},
    }


def small_batches(spark: SparkSession, clock: measure.Clock, server: S3) -> dict[str, object]:
    """Requests and seconds of a batch of ten; the seconds with 20 ms added to each request as well."""
    compared: dict[str, ways.Way] = {
        "append": append(spark, settings.home(), "append_small"), "exactly_once": ways.Ours(spark, "exactly_small")
    }  # fmt: skip
    number = 0

    def drained(way: ways.Way, batches: int) -> dict[str, int]:
        nonlocal number
        for _ in range(batches):
            put_ten(way.inbox, number := number + 1)
        server.well()
        way.drain()
        clock.settle()
        return server.counts

    found: dict[str, object] = {}
    for name, way in compared.items():
        drained(way, MANY)
        few, many = drained(way, FEW), drained(way, MANY)
        by_method = {method: (many[method] - few.get(method, 0)) / (MANY - FEW) for method in many}
        found[name] = {
            "requests": round(sum(by_method.values()), 1),
            "by_method": by_method,
            "seconds": _median_of(way, clock, lambda w=way: drained(w, MANY)),  # type: ignore[misc]
        }
        with mock.patch.object(S3, "well", lambda self: self.slow(DELAY_MS)):
            found[name] |= {"seconds_with_delay": _median_of(way, clock, lambda w=way: drained(w, MANY))}  # type: ignore[operator,misc]
    server.well()
    return found


def pipeline(files: list[list[Path]]) -> dict[str, object]:
    """The whole pipeline beside the same job without guarantees, both with all they have in the store."""
    from onlyonce.run import stream

    spark = SparkSession.getActiveSession()
    assert spark is not None
    bare = BareWhole(spark, settings.home())
    works: dict[str, tuple[Path, Callable[[], object]]] = {
        "bare": (bare.received.inbox, bare.drain),
        "exactly_once": (settings.inbox("whole"), lambda: stream.main(["whole", "--master", "local[2]"])),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    each = len(files) // (ROUNDS + 1)
    for start in range(0, each * (ROUNDS + 1), each):
        for name, (inbox, work) in works.items():
            _put(inbox, files[start : start + each])
            began = time.monotonic()
            work()
            seconds[name].append(time.monotonic() - began)
    ratio = measure.median(seconds["bare"][1:]) / measure.median(seconds["exactly_once"][1:])
    return {"seconds": seconds, "ratio": round(ratio, 3)}


class BareWhole(whole.Bare):
    """With tables and checkpoints in the store."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        super().__init__(spark, home)
        self.received = append(spark, home, "bare_whole")
        self.below = f"{settings.data_root()}/bare"


def _median_of(way: ways.Way, clock: measure.Clock, work: Callable[[], object]) -> float:
    clock.seconds.pop(way.query, None)
    work()
    return round(measure.median(clock.seconds.pop(way.query)[1:]), 4)


def _put(inbox: Path, batches: list[list[Path]]) -> None:
    inbox.mkdir(parents=True, exist_ok=True)
    for file in (file for batch in batches for file in batch):
        (inbox / file.name).hardlink_to(file)


def main() -> None:
    """All of it, in one session."""
    records, batches = (int(given) for given in sys.argv[1:])
    server, clock = S3(os.environ["AWS_ENDPOINT_URL"], None), measure.Clock()
    spark = session.start("store", "local[2]")
    migrate(settings.database_url())
    claims.claim(
        settings.data_root(), str(Authorities(Database(settings.database_url())).identity())
    )  # as a run does before anything is there
    (settings.home() / "input").mkdir(parents=True)
    files = deliveries.Input(records, batches, SEED).make(spark, settings.home() / "input")
    with mock.patch.object(DataStreamWriter, "start", lambda *given, **named: clock.start(*given, **named)):
        found = {"receive": throughput(spark, clock, files), "small": small_batches(spark, clock, server)}
        found["whole"] = pipeline(files)
    found["blocks"] = moved_blocks.compared(spark, settings.data_location("bench") / "blocks")
    sys.stdout.write(json.dumps(found | measure.circumstances()) + "\n")


if __name__ == "__main__":
    main()
