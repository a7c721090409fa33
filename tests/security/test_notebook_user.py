"""A person or a service that has the reader's password only: a notebook, a shell, Airflow's triggerer."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

import onlyonce
from onlyonce.airflow import log as airflow_log
from onlyonce.airflow.log import Asked
from onlyonce.airflow.stream_job import StreamOperator
from onlyonce.core.errors import Refused
from tests.contract.conftest import Log, log, new_log  # noqa: F401 - fixtures
from tests.contract.shop import Shop, at, shop  # noqa: F401 - a fixture
from tests.security.statements import states

SHOP = "tests/support/shop.py"
NO_WRITER = "postgresql+psycopg2://onlyonce_writer@127.0.0.1:1/none"


def as_reader(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Have the reader's URL only: there is no database at the writer's URL, and no password in it."""
    monkeypatch.setenv("ONLYONCE_READER_URL", log.server.url("reader", log.name))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", NO_WRITER)
    monkeypatch.delenv("AIRFLOW_CONN_ONLYONCE_DB", raising=False)


@pytest.fixture
def sold(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:  # noqa: F811
    """Yield a platform with closed windows, and one that is open, for a process that has the reader's URL only."""
    shop.receive(("u17", at(0)), ("other", at(0)), ("{", "no JSON"))
    shop.receive(("late", at(3)), ("later", at(70)))
    shop.receive(("last", at(70)))
    for query in ("per_shop", "balance"):
        shop.output(query, closes=(at(0), at(3)))
        shop.output(query)
    as_reader(shop.log, monkeypatch)
    return shop


@states("`onlyonce.open` in a notebook, `onlyonce trace` and `onlyonce rejected` read as the reader.")
def test_a_notebook_needs_no_writer(sold: Shop) -> None:
    """Rejected rows, and the fate and windows of a record that was kept, of one that was not, and of an id without a
    row in `events`."""
    opened = onlyonce.open("shop", SHOP)

    assert opened.rejected().empty
    assert [*opened.trace("u17").fate] == ["kept"]
    assert {*opened.windows("u17").output} >= {"per_shop", "balance"}
    assert opened.trace("never").empty


@states(
    "Airflow's triggerer reads whether windows are closed and whether a driver is alive as the reader too.",
    "It asks a driver to stop by the random name of the task that watches the driver, which no view shows: "
    "without it the reader stops no driver.",
)
def test_a_triggerer_needs_no_writer(sold: Shop) -> None:
    """It sees what the writer sees; a name that does not fit changes nothing."""
    supervisor = f"shop_stream/manual/1/{16 * 'ab'}"
    closed, still_open, gone = (
        Asked("shop", at(start).isoformat(), at(stop).isoformat(), "per_shop")
        for start, stop in ((0, 1), (200, 260), (-60, 0))
    )
    sold.log.rows("INSERT INTO onlyonce_private.long_runs (instance) VALUES ('shop') ON CONFLICT DO NOTHING")
    before = airflow_log.read_long_run("shop")
    sold.log.rows(
        "UPDATE onlyonce_private.long_runs SET attempt = 1, run_id = 'manual', driver = 'd', supervisor = %s, " "lost_after = interval '1 hour', "
        "started_at = now(), heartbeat_at = clock_timestamp(), ended_at = NULL, exit_code = NULL", supervisor,
    )  # fmt: skip
    alive = airflow_log.read_long_run("shop")

    assert before is None
    assert alive is not None
    assert (alive.alive, alive.stop_asked) == (True, False)
    assert [airflow_log.not_yet(asked) is None for asked in (closed, still_open)] == [True, False]
    assert not any(airflow_log.ask_stop(guess) for guess in ("shop_stream/manual/1", "", "%", supervisor[:-1]))
    assert sold.log.rows("SELECT stop_asked_at FROM onlyonce_private.long_runs") == [(None,)]
    assert airflow_log.ask_stop(supervisor)
    assert airflow_log.read_long_run("shop").stop_asked  # type: ignore[union-attr]
    sold.log.rows("UPDATE onlyonce_private.pipelines SET events_kept_from = %s", at(30))
    sold.log.rows(
        "INSERT INTO onlyonce_private.removals (instance, removal_no, keep_events, before, upto) VALUES ('shop', " "1, interval '1 day', %s, 1)", at(30),
    )  # fmt: skip
    with pytest.raises(Refused):
        airflow_log.not_yet(gone)


@states(
    "It asks a driver to stop by the random name of the task that watches the driver, which no view shows: "
    "without it the reader stops no driver."
)
def test_no_view_shows_a_supervisor(log: Log) -> None:  # noqa: F811
    """No one who reads the log sees its name, and each task has a name of its own."""
    with closing(psycopg2.connect(log.url.replace("+psycopg2", ""))) as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT view_name FROM information_schema.view_column_usage WHERE table_schema = "
            "'onlyonce_private' AND column_name = 'supervisor'"
        )
        assert cursor.fetchall() == []
    task = type("Task", (), {"dag_id": "shop_stream", "try_number": 1})()
    context = {"ti": task, "run_id": "manual"}
    operators = [
        StreamOperator(pipeline="shop", task_id=f"t{n}", application="x", conn_id="spark_default") for n in range(2)
    ]
    names = [[operator._supervisor(context) for _ in range(2)] for operator in operators]

    assert [name[0] for name in names] == [name[1] for name in names]
    assert names[0][0] != names[1][0]
    assert len(names[0][0].rpartition("/")[2]) == 32
