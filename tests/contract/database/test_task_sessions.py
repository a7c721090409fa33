"""The sessions of Spark's tasks: bounded in an executor, named, fenced like their driver's, and the same behind a
pooler."""

from __future__ import annotations

import getpass
import multiprocessing
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import make_url, text

from onlyonce.commitlog import units
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core.errors import DatabaseAway
from onlyonce.database import connect
from onlyonce.database.connect import Database, run, transaction
from onlyonce.local.processes import wait_until
from onlyonce.testing.scratch import free_port
from tests.contract.conftest import Log
from tests.contract.task import Task, shop_rows
from tests.support.needed import missing

UNIT = "17/per_shop/1 stage 3 task 4"
PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
TASKS = 4
AT_ONCE = 2
WORK = "SELECT pg_sleep(0.2)"
OF_TASKS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'onlyonce/%/%/%' AND datname = "
    "current_database()"
)


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of an output."""
    return log.start("shop", "per_shop")


def _work(database: Database, folder: Path, seen: SimpleQueue[int]) -> None:
    with connect.held_session(database, UNIT, folder) as here:
        for _ in range(2):
            with transaction(here) as connection:
                connection.exec_driver_sql(WORK)
                seen.put(connection.execute(text(OF_TASKS)).scalar_one())


def test_tasks_of_an_executor_have_no_more_sessions_at_once_than_they_may(
    log: Log, driver: Driver, tmp_path: Path
) -> None:
    """Each looks how many there are while it has one. All of them get their turn, and none leaves a session behind."""
    database = replace(driver.session(log.database), at_once=AT_ONCE)
    processes = multiprocessing.get_context("fork")
    seen: SimpleQueue[int] = processes.SimpleQueue()
    tasks = [processes.Process(target=_work, args=(database, tmp_path, seen)) for _ in range(TASKS)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()

    assert [task.exitcode for task in tasks] == [0] * TASKS
    assert max(seen.get() for _ in range(2 * TASKS)) == AT_ONCE
    wait_until(lambda: log.rows(OF_TASKS) == [(0,)], 20.0, "a task left a session")


def test_a_slot_is_free_again_when_its_task_was_killed(log: Log, driver: Driver, tmp_path: Path) -> None:
    """It is the system that frees it."""
    database = replace(driver.session(log.database), at_once=1)
    processes = multiprocessing.get_context("fork")
    seen: SimpleQueue[int] = processes.SimpleQueue()
    first = processes.Process(target=_work, args=(database, tmp_path, seen))
    first.start()
    seen.get()
    first.kill()
    first.join()

    _work(database, tmp_path, processes.SimpleQueue())


def test_a_session_of_a_task_says_incarnation_epoch_unit_and_attempt_and_has_the_options_of_ours(
    log: Log, driver: Driver, tmp_path: Path
) -> None:
    """The server's own time zone is another one."""
    log.rows(f"ALTER DATABASE \"{log.name}\" SET timezone = 'Asia/Tokyo'")
    asked = (
        "SELECT application_name, current_setting('timezone'), current_setting('lock_timeout') FROM "
        "pg_stat_activity WHERE pid = pg_backend_pid()"
    )
    with connect.held_session(driver.session(log.database), UNIT, tmp_path) as here, transaction(here) as connection:
        told = tuple(connection.execute(text(asked)).one())

    assert told == (f"onlyonce/{driver.number}/{driver.epoch}/{UNIT}", "UTC", "30s")


def test_a_newer_driver_ends_the_transactions_of_an_older_ones_tasks(log: Log, driver: Driver, tmp_path: Path) -> None:
    """Nothing that such a task has written is there."""
    newer: list[Driver] = []

    def fenced(database: Database) -> None:
        with transaction(database) as connection:
            Incarnations(connection).check_epoch(driver.incarnation, driver.epoch)
            connection.exec_driver_sql("CREATE TABLE results (n int)")
            newer.append(log.restart(driver))
            connection.exec_driver_sql("SELECT 1")

    with connect.held_session(driver.session(log.database), UNIT, tmp_path) as here, pytest.raises(DatabaseAway):
        fenced(here)

    assert [one.epoch for one in newer] == [driver.epoch + 1]
    assert log.rows("SELECT to_regclass('results')") == [(None,)]


@pytest.mark.parametrize("epoch", ["epoch", "NULL"])
def test_a_driver_is_at_work_while_a_task_of_it_has_a_transaction_and_not_for_what_a_pooler_keeps_open(
    log: Log, driver: Driver, tmp_path: Path, epoch: str
) -> None:
    """Asked for its epoch, and for any. The driver has no session of its own here."""
    session = psycopg2.connect(
        log.url.replace("+psycopg2", ""), application_name=f"onlyonce/{driver.number}/{driver.epoch}/{UNIT}"
    )
    at_work = (
        f"SELECT onlyonce_private.at_work(incarnation_no, {epoch}) FROM onlyonce_private.incarnations JOIN "
        "onlyonce_private.epochs USING (incarnation)"
    )
    with session.cursor() as cursor:
        cursor.execute("SELECT 1")
        during = log.rows(at_work)
        session.rollback()
    kept_open = log.rows(at_work)
    session.close()

    assert (during, kept_open) == ([(True,)], [(False,)])


def test_the_platforms_pooler_is_a_setting_like_others_and_that_of_a_sink_is_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting may stand in the file, too."""
    (tmp_path / "onlyonce.toml").write_text('database_url_pooler = "postgresql://pooler/onlyonce"\n')
    monkeypatch.setenv("ONLYONCE_CONFIG", str(tmp_path / "onlyonce.toml"))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://server/onlyonce")
    monkeypatch.setenv("SHOP_DB", "postgresql://server/shop")
    monkeypatch.setenv("SHOP_DB_POOLER", "postgresql://pooler/shop")

    assert units.database_of(None).pooler == "postgresql+psycopg2://pooler/onlyonce"
    assert units.database_of("SHOP_DB").pooler == "postgresql+psycopg2://pooler/shop"


@pytest.fixture
def pooler(log: Log, tmp_path: Path) -> Iterator[str]:
    """A PgBouncer in transaction mode before the log's server, with one session for everybody; gives its URL."""
    if PGBOUNCER is None:
        missing("no PgBouncer: apt-get install pgbouncer")
    at, port = make_url(log.url), free_port()
    (tmp_path / "users").write_text(f'"{at.username}" "{at.password}"\n')
    (tmp_path / "ini").write_text(
        f"[databases]\n{at.database} = host={at.host} port={at.port}\n[pgbouncer]\nlisten_addr = "
        f"127.0.0.1\nlisten_port = {port}\n"
        "unix_socket_dir =\npool_mode = transaction\ndefault_pool_size = 1\nauth_type = scram-sha-256\nauth_file "
        f"= {tmp_path}/users\n"
    )
    as_user = ["--user=nobody"] if getpass.getuser() == "root" else []
    tmp_path.chmod(0o755)
    (tmp_path / "users").chmod(0o644)
    with (tmp_path / "log").open("wb") as told:
        process = subprocess.Popen([PGBOUNCER, *as_user, str(tmp_path / "ini")], stdout=told, stderr=told)
    url = at.set(port=port).render_as_string(hide_password=False)
    try:
        wait_until(lambda: _answers(Database(url, of_task=True)), 20.0, f"PgBouncer: {tmp_path / 'log'}")
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(database: Database) -> bool:
    try:
        return run(database, lambda conn: conn.exec_driver_sql("SELECT 1").rowcount) == 1
    except DatabaseAway:
        return False


def test_units_written_through_a_pooler_are_there_once_and_its_one_session_serves_all(
    log: Log, driver: Driver, pooler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tasks of a batch, each twice. The pooler has one session with the server."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    database = replace(driver.session(log.database), pooler=pooler)
    rows = [shop_rows(100, 100 * partition) for partition in range(3)]
    for _ in range(2):
        for partition in range(3):
            Task(log, driver, database, partition=partition).run(rows[partition])

    assert Task(log, driver, database).table() == Task.wanted(*rows)
    assert log.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = current_database() AND "
        "application_name <> 'onlyonce' AND pid <> pg_backend_pid()"
    ) == [(1,)]
