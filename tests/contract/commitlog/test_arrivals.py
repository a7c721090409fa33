"""An arrival that a wrong clock has dated is corrected: what comes next arrives now, and no id is forgotten before its
horizon."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onlyonce.catalog import look_up
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.health import Health
from onlyonce.commitlog.incarnations import Driver, SourceBatches
from onlyonce.commitlog.sources import Arrivals
from onlyonce.core.batch import to_micros
from onlyonce.core.diagnosis import Finding, waiting
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.gc import BUCKET
from onlyonce.database.connect import forget_connections, run
from onlyonce.database.statements import make_home
from onlyonce.operate import doctor
from onlyonce.sources import manifest
from tests.contract.conftest import Log
from tests.contract.operate.test_collect import Stream
from tests.contract.shop import SHOP

YEAR = timedelta(days=365) // BUCKET
LAST = {"files": 7}


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stream:
    """A log with its folder, and receive without Spark."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", SHOP)
    monkeypatch.setattr(manifest, "last_batches", lambda _instance: LAST)
    look_up.forget()
    return Stream(log)


def now() -> int:
    """The bucket of this moment."""
    return int(datetime.now(UTC).timestamp()) // 600


def correct(stream: Stream) -> datetime:
    """The correction, in a transaction of its own."""
    return Arrivals(stream.log.database).correct("shop", lambda: LAST)


def collect(stream: Stream, horizon: int) -> None:
    """Raise the floor for a horizon in buckets."""
    Collector(stream.log.database).raise_floor("shop", horizon)


def ahead(stream: Stream) -> list[Finding]:
    """What the doctor finds about arrivals."""
    rows = Health(stream.log.database).waits()
    return [one for one in waiting(rows, ["shop"], [], 0) if one.kind == "ingestion time ahead"]


def test_the_doctor_names_an_arrival_that_is_ahead_and_corrects_it(stream: Stream) -> None:
    """With --yes alone, since ids stay longer then.

    Afterwards the last arrival is the time of the correction, whichever batch is asked.
    """
    stream.batch(now() - 1)
    assert ahead(stream) == []
    stream.batch(now() + YEAR)
    before = datetime.now(UTC)

    [found] = ahead(stream)
    assert "ahead of PostgreSQL's clock" in found.what
    assert found.row()["repair"] == "onlyonce doctor --fix --yes"
    assert (doctor.may_repair(found, yes=False), doctor.may_repair(found, yes=True)) == (False, True)
    doctor.carry_out(stream.log.database, found, Namespace())

    assert ahead(stream) == []
    corrected = Arrivals(stream.log.database).corrected("shop")
    assert corrected.registered == LAST
    assert corrected.arrival is not None
    assert before <= corrected.arrival <= datetime.now(UTC)
    assert Batches(stream.log.database).last_arrival("shop") == corrected.arrival


@pytest.mark.parametrize("horizon", [3, 9])
@pytest.mark.parametrize("collected_ahead", [False, True])
def test_after_a_correction_no_id_within_the_horizon_is_forgotten(
    stream: Stream, horizon: int, collected_ahead: bool
) -> None:
    """Also if a collection came between: what it has removed stays removed, and what comes next is not expired."""
    start = now()
    for bucket in (start - 2, start - 1, start + YEAR):
        stream.batch(bucket)
    if collected_ahead:
        collect(stream, horizon)
    corrected = correct(stream)
    first = int(corrected.timestamp()) // 600
    collect(stream, horizon)
    for later in range(horizon + 2):
        stream.batch(first + later)
    collect(stream, horizon)
    last = stream.begin(first + horizon + 2)

    assert last.gc_floor == stream.floor == first + 1
    assert stream.knows(last, start + YEAR)
    assert all(stream.knows(last, first + later) for later in range(1, horizon + 2))


def test_a_correction_waits_for_drivers_and_begun_batches(stream: Stream) -> None:
    """Nothing is changed meanwhile."""
    stream.batch(now() + YEAR)
    run(stream.driver.session(stream.log.database), lambda conn: conn.exec_driver_sql("SELECT 1"))
    with pytest.raises(Retryable, match="is running"):
        correct(stream)
    forget_connections()
    stream.log.rows(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE "
        "'onlyonce/%%/%%' AND datname = current_database()"
    )
    batch = stream.begin(now() + YEAR)
    with pytest.raises(Refused, match="has begun with the arrival that is ahead"):
        correct(stream)
    assert stream.log.rows("SELECT * FROM onlyonce_private.corrected_arrivals") == []
    stream.end(batch)
    correct(stream)


def test_ids_that_were_removed_far_ahead_refuse_a_correction(stream: Stream) -> None:
    """Some batches came long ahead, and the floor is behind them: an arrival of now would bring their removed ids
    back."""
    for bucket in (now() - 1, now() + 100, now() + YEAR):
        stream.batch(bucket)
    collect(stream, 3)
    with pytest.raises(Refused, match="ids of shop were removed up to"):
        correct(stream)


def test_a_source_is_last_heard_of_at_the_correction(log: Log, stream: Stream) -> None:
    """Of several sources: then each can be idle again."""
    from tests.contract.commitlog.test_source_batches import whole

    driver: Driver = stream.driver
    whole(log, driver, 0, "web", datetime.now(UTC))
    far = to_micros(datetime.now(UTC) + timedelta(days=365))
    log.rows(
        "UPDATE onlyonce_private.batches SET ingestion_time = ingestion_time + interval '365 d', "
        "source_progress_after = jsonb_set(source_progress_after, '{web,seen}', to_jsonb(%s::bigint)) RETURNING 1",
        far,
    )
    arrival = correct(stream)
    known = SourceBatches(log.database).known("shop")
    seen = to_micros(arrival)
    assert known.of["web"].seen == seen
    assert known.of["till"].seen <= (seen or 0)
