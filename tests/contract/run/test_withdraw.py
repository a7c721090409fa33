"""A begun batch of an output whose checkpoint is lost: what a new incarnation withdraws, what it must not, and whom it
fences."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.commitlog import units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Declarations, Declared, Incarnations
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.commitlog.units import Authorities, Units
from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Refused, Retryable
from onlyonce.core.frontier import Frontier
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import run
from onlyonce.database.statements import make_home
from onlyonce.run import reset
from onlyonce.tables.table_files import beside
from tests.contract.conftest import Log, plan_of
from tests.contract.shop import commit
from tests.support import deleted_keys
from tests.support.delta_history import clean_history

EMPTY = pa.table({"shop": pa.array([], pa.string())})
ROW = pa.table({"shop": ["a"]})
TABLE = "delta:shop/per_shop"
LEAVES = {
    "a reference unit before its commit": ("reference", "append", TABLE, 1),
    "units without rows": ("data", "append", "postgres::results.per_shop", 0),
    "an upsert": ("data", "upsert", "postgres::results.per_shop", 1),
    "files without a pane": ("data", "FileSink()", "files:shop/per_shop", 1),
}
STAYS = {
    "an append": ("data", "append", "postgres::results.per_shop", 1),
    "an increment": ("data", "increment", "postgres::results.per_shop", 1),
    "rows in the outbox": ("data", "post", "webhook:there", 1),
}


class Output:
    """The output per_shop of a platform, with a batch that has begun; its sink is what the log says it was declared
    as."""

    def __init__(self, log: Log, write: str, target: str) -> None:
        self.log, self.driver = log, log.start("shop", "per_shop")
        parts = {"outputs": {"per_shop": {"write": write, "target": target}}}
        Declarations(log.database).keep(Declared("shop", "per_shop", "d1", parts))
        Batches(log.database).begin(self.driver, "shop", plan_of(self.driver), Frontier())
        self.app_id = stored_names.result_transaction(
            Authorities(log.database).identity(), self.driver.incarnation, "per_shop"
        )
        self.table = settings.tables_dir() / "shop" / "per_shop"

    def unit(self, kind: Any, rows: int) -> None:
        """Commit a unit of the batch."""
        name = UnitId(self.driver.incarnation, 0, "per_shop", 0)

        def work(conn: Any) -> None:
            Units(conn).claim(units.Claim(name, self.driver.epoch, "driver", kind))
            Units(conn).fill(name, Content(rows, "hash"))

        run(self.log.database, work)

    def left(self) -> Counter[Any]:
        """What the log has of the batch, and of the files of its units."""
        return self.log.multiset(
            "SELECT 'batch' FROM onlyonce_private.batches UNION ALL SELECT 'unit' FROM onlyonce_private.units "
            "UNION ALL SELECT 'file' FROM onlyonce_private.files"
        )

    def file(self) -> None:
        """Record a file of the batch, as a unit of sharded files does; it has no pane yet."""
        self.log.rows(
            "INSERT INTO onlyonce_private.files (instance, output, incarnation, batch_id, partition, shard, shards, place, "
            "temporary, name, rows, bytes, checksum) VALUES ('shop', 'per_shop', %s, 0, 0, 0, 1, 'p', 't', "
            "'n-{pane}', 1, 1, 'c')",
            self.driver.incarnation,
        )


@pytest.fixture
def home(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Log:
    """The log of a platform that is this process's."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    return log


@pytest.mark.parametrize("kind", LEAVES)
def test_what_a_new_incarnation_writes_anew_is_withdrawn_whole(home: Log, kind: str) -> None:
    """No unit, file or batch is left of it, and the old incarnation is closed."""
    sort, write, target, rows = LEAVES[kind]
    output = Output(home, write, target)
    commit(output.table, EMPTY, "another", 0)
    output.unit(sort, rows)
    output.file()

    reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter()
    live = Incarnations(home.database).live("shop", "per_shop")
    assert live is not None
    assert live.incarnation == "shop/per_shop/2"


@pytest.mark.parametrize("kind", STAYS)
def test_what_a_new_incarnation_would_write_twice_is_not_withdrawn(home: Log, kind: str) -> None:
    """Its rows are where readers see them."""
    sort, write, target, rows = STAYS[kind]
    output = Output(home, write, target)
    output.unit(sort, rows)

    with pytest.raises(Refused):
        reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter([("batch",), ("unit",)])


def test_a_reference_whose_rows_are_in_the_table_is_not_withdrawn(home: Log) -> None:
    """The table's transaction says whether they are."""
    output = Output(home, "append", TABLE)
    output.unit("reference", 1)
    commit(output.table, ROW, output.app_id, 0)

    with pytest.raises(Refused):
        reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter([("batch",), ("unit",)])


@pytest.mark.parametrize("used_up", [False, True])
def test_a_table_holds_a_transaction_after_its_history_was_cleaned(home: Log, *, used_up: bool) -> None:
    """As a team's own log retention does. The snapshot shows whether the transaction has rows or was used up."""
    output = Output(home, "append", TABLE)
    commit(output.table, EMPTY, "another", 0)
    if used_up:
        reset.take_back(output.table, output.app_id, 0)
    else:
        commit(output.table, ROW, output.app_id, 0)
    clean_history(output.table)
    assert reset.batch_holds(output.table, output.app_id, 0) is not used_up
    assert not reset.batch_holds(output.table, output.app_id, 1)
    if used_up:
        reset.take_back(output.table, output.app_id, 0)


def test_rows_that_land_after_the_look_keep_their_batch_from_being_withdrawn(home: Log) -> None:
    """No epoch fences a table: a driver that wakes between the look and the mark has its rows there, and its unit must
    stay.

    The next attempt sees them."""
    output = Output(home, "append", TABLE)
    commit(output.table, EMPTY, "another", 0)
    output.unit("reference", 1)
    take = reset.take_back

    def woken(*arguments: Any) -> None:
        commit(output.table, ROW, output.app_id, 0)
        take(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reset, "take_back", woken)
        with pytest.raises(Retryable):
            reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter([("batch",), ("unit",)])
    left = reset.left_by_batch("shop", NewIncarnations(home.database).left(output.driver, "shop", "per_shop", 0))
    assert [reset.is_written(one, 0) for one in left] == [True]


def test_a_driver_that_wakes_can_not_land_a_withdrawn_batch(home: Log) -> None:
    """Its transaction is taken before its unit goes: also by a new incarnation that was killed between, and is asked for
    again."""
    output = Output(home, "append", TABLE)
    commit(output.table, EMPTY, "another", 0)
    output.unit("reference", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewIncarnations, "begin", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reset.new("shop/per_shop", yes=True)
    assert output.left() == Counter([("batch",), ("unit",)])

    reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter()
    assert DeltaTable(str(output.table)).transaction_version(output.app_id) == 0
    assert DeltaTable(str(output.table)).to_pyarrow_table().num_rows == 0


def test_the_deletes_of_a_withdrawn_batch_can_not_land_either(home: Log) -> None:
    """They come before the rows, so an older driver may wake before both.

    A batch whose deletes are there is withdrawn too: a new incarnation writes them again.
    """
    output = Output(home, "upsert", TABLE)
    commit(output.table, EMPTY, "another", 0)
    kept = deleted_keys.made(output.table)
    output.unit("reference", 1)

    reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter()
    assert [DeltaTable(str(one)).transaction_version(output.app_id) for one in (output.table, kept)] == [0, 0]


def test_a_batch_whose_deletes_have_landed_without_its_rows_is_withdrawn(home: Log) -> None:
    """What was deleted stays remembered, and nothing more is committed there."""
    output = Output(home, "upsert", TABLE)
    commit(output.table, EMPTY, "another", 0)
    commit(deleted_keys.made(output.table), pa.table({"id": ["a"]}), output.app_id, 0)
    output.unit("reference", 1)
    version = DeltaTable(str(beside(output.table))).version()

    reset.new("shop/per_shop", yes=True)

    assert output.left() == Counter()
    assert DeltaTable(str(output.table)).transaction_version(output.app_id) == 0
    assert DeltaTable(str(beside(output.table))).version() == version


def test_a_table_beside_that_is_somebody_elses_is_left_alone(home: Log) -> None:
    """A name is no proof."""
    output = Output(home, "append", TABLE)
    commit(output.table, EMPTY, "another", 0)
    commit(beside(output.table), EMPTY, "another", 0)
    output.unit("reference", 1)

    reset.new("shop/per_shop", yes=True)

    assert DeltaTable(str(beside(output.table))).transaction_version(output.app_id) is None


def test_a_new_incarnation_of_receive_that_was_killed_before_its_end_goes_on(home: Log) -> None:
    """The transaction that it has taken in `events` is not taken for the batch's rows."""
    driver = home.start("shop", "receive")
    Batches(home.database).begin(driver, "shop", plan_of(driver), None)
    events = settings.data_dir("shop") / "events"
    commit(events, EMPTY, "another", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewIncarnations, "begin", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reset.new("shop/receive", yes=True)

    reset.new("shop/receive", yes=True)

    assert home.rows("SELECT count(*) FROM onlyonce_private.batches") == [(0,)]


def test_a_receive_batch_whose_commit_is_cleaned_from_the_log_is_not_ended(home: Log) -> None:
    """Its rows are in `events`, and only the table's log shows with which version. So it is neither ended nor withdrawn."""
    driver = home.start("shop", "receive")
    Batches(home.database).begin(driver, "shop", plan_of(driver), None)
    events = settings.data_dir("shop") / "events"
    commit(events, EMPTY, stored_names.transaction(driver.incarnation, stored_names.EVENTS_BY), 0)
    clean_history(events)

    with pytest.raises(InvariantBroken, match="no entry of a commit that was written"):
        reset.new("shop/receive", yes=True)

    assert home.rows("SELECT state FROM onlyonce_private.batches") == [("begun",)]


def test_an_output_of_a_bounded_run_gets_no_new_incarnation(home: Log) -> None:
    """It would write all rows again; a new incarnation of its receive continues after what was taken in."""
    Incarnations(home.database).add_instance("shop@1", "shop")
    home.start("shop@1", "per_shop")
    home.start("shop@1", "receive")

    with pytest.raises(Refused, match="would write all of its rows again"):
        reset.new("shop@1/per_shop", yes=True)

    assert reset.new("shop@1/receive", yes=True).facts["new"] == "shop@1/receive/2"
