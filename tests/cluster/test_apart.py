"""A Spark cluster whose machines share no disk: what is in S3 and in PostgreSQL is all they have in common.

The results are the batch computation's, also where a machine is lost.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from onlyonce import settings
from onlyonce.core.locations import Location, location
from onlyonce.local import feed, processes
from onlyonce.sinks.files import finalize
from onlyonce.tables import opening, stores
from tests import oracle
from tests.cluster.machines import PATIENCE, Machines, machines, needed
from tests.spark.run.test_reference import FIRST, LAST
from tests.support import reference, s3, shop_oracle
from tests.support.platform import Platform, multiset
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]

FILES = shop_oracle.sales(120, 2)
NO_RECORD = "no record"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server of S3."""
    needed()
    with s3.versitygw(tmp_path_factory.mktemp("apart") / "s3") as server:
        yield server


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, store: S3) -> Iterator[Machines]:
    """A master and two workers."""
    with machines(tmp_path_factory.mktemp("apart"), store.environment) as cluster:
        yield cluster


def placed(platform: Platform, store: S3, monkeypatch: pytest.MonkeyPatch, pipelines: str = "apart_shop.py") -> None:
    """The data and the inbox of a platform are in a bucket."""
    bucket = store.bucket()
    platform.give(
        monkeypatch, **store.environment, ONLYONCE_DATA=f"{bucket}/lake", STORE=bucket, ONLYONCE_IN_DRIVER_BYTES="0",
        ONLYONCE_PIPELINES=str(settings.ROOT / "tests" / "support" / pipelines),
    )  # fmt: skip


def put_all(platform: Platform, files: list[list[dict[str, object]]]) -> None:
    """An object for each list, with a line that is left for Spark's parser."""
    inbox = location(platform.environment["STORE"]) / "inbox"
    for number, records in enumerate(files):
        text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records) + f"{NO_RECORD}\n"
        stores.of(inbox).put(inbox / f"sales-{number:04}.jsonl", text.encode())


def check(platform: Platform, files: list[list[dict[str, object]]]) -> None:
    """Each record once, and each output the batch computation."""
    records = shop_oracle.distinct(files)
    events = opening.table(settings.data_location("shop") / "events").to_pandas()
    assert multiset(events[events.oo_kind == "kept"], "id", "shop", "cents") == multiset(records, "id", "shop", "cents")
    each, per_shop = (
        opening.table(settings.table_location(f"shop/{name}")).to_pandas() for name in ("each", "per_shop")
    )
    assert multiset(each, "id", "shop", "cents") == multiset(records, "id", "shop", "cents")
    wanted, found = (
        rows.assign(weight=rows.weight.round(6), window_start=pd.to_datetime(rows.window_start, utc=True))
        for rows in (shop_oracle.per_shop(records[~records.late]), per_shop)
    )
    columns = ("window_start", "shop", "sales", "cents", "weight")
    assert multiset(found, *columns) == multiset(wanted, *columns)
    log = platform.sql("SELECT * FROM onlyonce.conservation")
    assert log["conserved"].all()
    received = log[log["query"] == "receive"]
    assert (received["records_in"].sum(), received["invalid"].sum()) == (sum(map(len, files)) + len(files), len(files))


@pytest.mark.whole
def test_a_run_on_machines_that_share_nothing_is_a_run_like_any_other(
    platform: Platform, apart: Machines, store: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(platform, store, monkeypatch)
    put_all(platform, FILES)
    apart.ends_well(apart.driver(platform, "shop", "--close"))
    check(platform, FILES)
    assert not platform.home.joinpath("data").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "records"), [("user_counts", 2000), ("flights", 3000)])
def test_the_pipelines_that_ship_run_on_machines_that_share_nothing(
    platform: Platform,
    apart: Machines,
    store: S3,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    records: int,
) -> None:
    """With re-deliveries, Delta in the store, PostgreSQL, and sharded files that the executors write into the store:
    their manifests name each row once.

    A backfill, by a driver on another machine, folds in what was late."""
    placed(platform, store, monkeypatch, "apart_reference.py")
    feed.feed_files(name, tmp_path / "in", duplicates=0.1, records=records, files=6)
    files = sorted((tmp_path / "in").glob("*.jsonl"))
    inbox = location(platform.environment["STORE"]) / "inbox" / name
    for file in files:
        stores.of(inbox).put(inbox / file.name, file.read_bytes())
    apart.ends_well(apart.driver(platform, name, "--close"))
    reference.compare(platform, name, [files[:3], files[3:]])
    if name == "flights":
        finalize.main(["flights"])
        rows = [
            json.loads(line) for line in sharded(location(platform.environment["STORE"]) / "files" / "carrier_files")
        ]
        wanted = platform.table("flights/per_carrier")
        assert Counter((row["carrier"], row["flights"], row["delay_minutes"]) for row in rows) == multiset(
            wanted, "carrier", "flights", "delay_minutes"
        )
    assert platform.sql("SELECT sum(late) AS late FROM onlyonce.late")["late"][0] > 0
    backfill = apart.driver(
        platform, name, "--from", FIRST, "--to", LAST, name="backfill", application="onlyonce.outputs.backfill"
    )
    apart.ends_well(backfill, "backfill")
    reference.results_are_of(platform, name, oracle.distinct(files, reference.OF[name][0]))


def sharded(at: Location) -> list[bytes]:
    """The lines of the files that manifests name."""
    place = stores.of(at)
    manifests = [
        json.loads(place.read(entry.at))
        for entry in place.entries(at / "_manifests")
        if entry.at.name.endswith(".json")
    ]
    assert manifests
    return [line for one in manifests for file in one["files"] for line in place.read(at / file["object"]).splitlines()]


def armed(platform: Platform, point: str, nth: int, action: str) -> tuple[Path, dict[str, str]]:
    """The folder of a fail-point, which the test sees too, and the environment in which it strikes."""
    folder = platform.home / "failpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder, {"ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINTS": f"{point}:{nth}:{action}"}


def until_struck(platform: Platform, point: str, driver_ended: Callable[[], object]) -> None:
    """Wait for the first pass of a fail-point."""
    processes.wait_until(lambda: platform.struck(point) > 0 or driver_ended() is not None, PATIENCE, point)
    assert platform.struck(point) > 0


@pytest.mark.slow
@pytest.mark.fault
def test_blocks_that_were_on_a_lost_machine_are_made_again(
    platform: Platform, store: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One machine has read the lines of a batch, and holds what was exchanged.

    It is lost before any of it is judged; another one reads them again.
    """
    placed(platform, store, monkeypatch)
    put_all(platform, FILES)
    point = "receive-unit-before-claim"
    with machines(tmp_path / "machines", store.environment, workers=0) as cluster:
        shown, environment = armed(platform, point, 1, "stop")
        lost = cluster.worker("lost", shown=shown, **environment)
        driver = cluster.driver(platform, "shop", "--close", conf={"spark.scheduler.minRegisteredResourcesRatio": "0"})
        until_struck(platform, point, driver.poll)
        cluster.lose(lost)
        cluster.worker("other")
        cluster.ends_well(driver)
        assert "FetchFailed" in cluster.told("driver") or "Lost executor" in cluster.told("driver")
    check(platform, FILES)


@pytest.mark.slow
@pytest.mark.fault
def test_a_machine_that_is_lost_after_its_commit_does_not_show(
    platform: Platform, store: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its unit is in the log, and its rows are in no file that anybody names."""
    placed(platform, store, monkeypatch)
    put_all(platform, FILES)
    point = "receive-unit-after-commit"
    with machines(tmp_path / "machines", store.environment, workers=0) as cluster:
        shown, environment = armed(platform, point, 1, "kill")
        lost = cluster.worker("lost", shown=shown, **environment)
        cluster.worker("other")
        driver = cluster.driver(platform, "shop", "--close")
        until_struck(platform, point, driver.poll)
        assert lost.wait(60) == -signal.SIGKILL
        cluster.ends_well(driver)
    check(platform, FILES)


@pytest.mark.slow
@pytest.mark.fault
def test_a_driver_is_lost_and_one_that_was_taken_for_lost_wakes(
    platform: Platform, store: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each driver starts on a machine with an empty disk.

    The first is killed once its rows are committed; the second stands still before a commit; the third does all of it.
    Woken, the second commits nothing."""
    placed(platform, store, monkeypatch)
    put_all(platform, FILES)
    with machines(tmp_path / "machines", store.environment, workers=0) as cluster:
        for name in ("worker-0", "worker-1"):
            cluster.worker(name, SPARK_WORKER_CORES="2", SPARK_WORKER_MEMORY="3g")
        shown, environment = armed(platform, "receive-after-delta", 1, "kill")
        killed = cluster.driver(platform, "shop", "--close", name="killed", shown=shown, environment=environment)
        assert killed.wait(PATIENCE) != 0
        assert platform.struck("receive-after-delta") == 1, cluster.told("killed")[-3000:]

        shown, environment = armed(platform, "table-before-commit", 1, "stop")
        zombie = cluster.driver(platform, "shop", "--close", name="zombie", shown=shown, environment=environment)
        until_struck(platform, "table-before-commit", zombie.poll)
        cluster.ends_well(cluster.driver(platform, "shop", "--close", name="newer"), "newer")
        check(platform, FILES)

        cluster.wake(zombie)
        assert zombie.wait(PATIENCE) != 0
        assert "Superseded" in cluster.told("zombie") or "newer driver" in cluster.told("zombie"), cluster.told(
            "zombie"
        )[-3000:]
    check(platform, FILES)
