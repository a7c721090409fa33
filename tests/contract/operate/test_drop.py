"""A drop takes a pipeline or an output away, wholly, once it is declared no more; killed anywhere, the same command
ends it.

On the real PostgreSQL, with Delta tables that are made without Spark.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.target_identity import declared_identity, targets
from onlyonce.check import Checked
from onlyonce.cli import app, checking
from onlyonce.commitlog import incarnations
from onlyonce.commitlog.dropping import Drops, Targets
from onlyonce.commitlog.incarnations import Declarations, Incarnations
from onlyonce.context import check_declarations
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.ownership import Place
from onlyonce.database.migrate import migrate_authority
from onlyonce.operate import doctor, drop, plan
from onlyonce.tables import removal
from onlyonce.tables.table_files import beside
from tests.contract.conftest import Log, ask
from tests.contract.shop import SHOP, Shop, at, shop
from tests.support import deleted_keys
from tests.support.other_process import script_apart

__all__ = ["shop"]
NONE = "PIPELINES = []\n"
WITHOUT_BALANCE = (
    "import dataclasses\nfrom tests.support.shop import SHOP\n"
    "PIPELINES = [dataclasses.replace(SHOP, outputs=SHOP.outputs[:2])]\n"
)
ELSEWHERE = (
    "import dataclasses\nfrom onlyonce.api.pipeline import Postgres\nfrom tests.support.shop import SHOP\n"
    "SINK = Postgres(table='results.balance', write='increment', keys=('shop',), connection='TEST_OTHER_DATABASE')\n"
    "PIPELINES = [dataclasses.replace(SHOP, outputs=(*SHOP.outputs[:2], dataclasses.replace(SHOP.outputs[2], "
    "sink=SINK)))]\n"
)
TABLES = ["results.total", "results.balance"]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Changes the file with the declarations."""

    def write(text: str) -> None:
        path = tmp_path / "declared.py"
        path.write_text(text)
        monkeypatch.setenv("ONLYONCE_PIPELINES", str(path))

    return write


@pytest.fixture
def lived(shop: Shop) -> Shop:
    """The shop has received and written, beside a bounded run and another pipeline; its drivers have ended."""
    shop.receive(("a", at(0)), ("b", at(1)), ('{"id"', "the line is no JSON object"))
    shop.output(closes=(at(0),))
    shop.output("balance")
    shop.log.start("shop@1", "receive")
    shop.log.start("mill", "receive")
    for table in TABLES:
        shop.log.rows(
            f"CREATE SCHEMA IF NOT EXISTS results; CREATE TABLE {table} (n int); INSERT INTO {table} VALUES (1)"
        )
    for folder in ("inbox/shop", "data/mill", "data/shop/staged/balance"):
        (settings.home() / folder).mkdir(parents=True, exist_ok=True)
    (settings.inbox("shop") / "a.jsonl").write_text("{}")
    shop.die()
    return shop


def rows(log: Log) -> Counter[Any]:
    """(table, row) of every private table: what the log knows; what the doctor saw last is no part of it."""
    tables = log.rows(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'onlyonce_private'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('formats', 'views_made', "
        "'leftovers', 'looks')"
    )
    return Counter((table, row) for (table,) in tables for (row,) in log.rows(f"SELECT t::text FROM {table} t"))


def of(known: Counter[Any], name: str) -> Counter[Any]:
    """The rows that speak of it."""
    return Counter({row: count for row, count in known.items() if f"{name}," in row[1] or f"{name}/" in row[1]})


def files() -> set[str]:
    """All files and folders of the platform that are pipelines' own."""
    found = [path for name in ("data", "tables", "inbox") for path in (settings.home() / name).glob("*")]
    return {str(path.relative_to(settings.home())) for path in found}


def notes(log: Log) -> dict[str, str]:
    """What is noted of places beside the log."""
    return dict(log.rows("SELECT place, state FROM onlyonce_private.leftovers"))


def refuse_left(log: Log) -> None:
    """What a starting driver of the shop, as it was declared, asks before it reads anything.

    It needs no session for that.
    """
    pipeline = declarations.load([Path(SHOP)])["shop"]
    check_declarations(log.database, pipeline, "shop")


def test_what_is_declared_is_not_dropped(lived: Shop, declare: Callable[[str], None]) -> None:
    """Neither the pipeline nor one of its outputs, whatever else is asked."""
    before = rows(lived.log)
    for argv in (["shop"], ["shop", "--output", "balance"], ["shop", "--output", "total", "--tables"]):
        with pytest.raises(Refused, match="is declared"):
            drop.main([*argv, "--yes"])

    assert rows(lived.log) == before


def test_a_pipeline_that_has_kept_nothing_starts_over_under_its_name(shop: Shop, log: Log) -> None:
    """A declared one, after a run in which each record was invalid; an output alone is not dropped so."""
    shop.receive(('{"id"', "the line is no JSON object"))
    shop.die()
    with pytest.raises(Refused, match="is declared"):
        drop.main(["shop", "--output", "total", "--yes"])
    assert Declarations(log.database).nothing_kept("shop")
    assert Declarations(log.database).invalid_lost("shop") == 1

    report = drop.main(["shop", "--yes"])

    assert report.facts["done"]
    assert log.rows("SELECT count(*) FROM onlyonce_private.incarnations") == [(0,)]


@pytest.mark.parametrize(
    "keep",
    [
        "UPDATE onlyonce_private.batches SET kept = 1",
        "UPDATE onlyonce_private.batches SET state = 'begun', committed_at = NULL, kept = NULL",
        "UPDATE onlyonce_private.pipelines SET log_kept_from = now()",
        "UPDATE onlyonce_private.units SET kind = 'data', rows = 1",
        "INSERT INTO onlyonce_private.authorities SELECT incarnation, 'THEIRS' FROM onlyonce_private.incarnations",
        "INSERT INTO onlyonce_private.subscriptions (subscription, pipeline) VALUES ('projects/p/subscriptions/s', 'shop')",
    ],
    ids=["a record", "half a batch", "an older log", "a row", "another database", "acknowledged messages"],
)
def test_what_may_have_kept_something_does_not_start_over(shop: Shop, log: Log, keep: str) -> None:
    """Each place that may hold something of it is asked; what can't be asked, or read again, counts as kept."""
    shop.receive(('{"id"', "the line is no JSON object"))
    shop.die()
    log.rows(f"{keep} RETURNING 1")
    before = rows(log)

    assert not Declarations(log.database).nothing_kept("shop")
    with pytest.raises(Refused, match="is declared"):
        drop.main(["shop", "--yes"])
    assert rows(log) == before


def test_what_has_a_driver_is_not_dropped(shop: Shop, declare: Callable[[str], None]) -> None:
    """A session of any of its queries counts; the way out is a command."""
    shop.receive(("a", at(0)))
    shop.work()
    declare(NONE)
    before = rows(shop.log)

    with pytest.raises(Retryable, match="is running") as refused:
        drop.main(["shop", "--yes"])

    assert "onlyonce stop shop" in refused.value.hint
    assert rows(shop.log) == before


def test_without_yes_it_only_says_what_goes_and_what_stays(lived: Shop, declare: Callable[[str], None]) -> None:
    """Each place is named; nothing has changed."""
    declare(NONE)
    before, there = rows(lived.log), files()

    report = drop.main(["shop"])

    assert (rows(lived.log), files(), notes(lived.log)) == (before, there, {})
    home = settings.home()
    assert [row["where"] for row in report.tables["goes"]][1:] == [f"{home}/data/shop", f"{home}/data/shop@1"]
    assert {row["where"] for row in report.tables["stays"]} == {
        f"{home}/tables/shop/per_shop", "results.total", "results.balance", f"{home}/inbox/shop"
    }  # fmt: skip
    assert "add --yes" in report.title
    assert report.facts["batches"] == 3
    assert report.facts["invalid records"] == 1
    assert [warning for warning in report.warnings if warning.startswith("1 invalid record of shop would be removed")]
    assert report.warnings[-1].startswith("no file that was read declares shop, and its last batch was committed at 20")
    assert drop.main(["shop", "--output", "nix"]).tables["goes"] == []


def test_a_pipeline_goes_with_its_bounded_runs_and_its_tables_stay(lived: Shop, declare: Callable[[str], None]) -> None:
    """No row of the log speaks of it any more; other pipelines, the input and the sinks' rows are as they were."""
    declare(NONE)
    others = rows(lived.log) - of(rows(lived.log), "shop") - of(rows(lived.log), "shop@1")

    drop.main(["shop", "--yes"])

    assert rows(lived.log) == others
    assert files() == {"data/mill", "inbox/shop", "tables/shop"}
    assert [lived.log.rows(f"SELECT n FROM {table}") for table in TABLES] == [[(1,)]] * 2
    assert drop.main(["shop", "--yes"]).title == "shop: nothing is left to drop"
    wrong = drop.main(["mil", "--yes"])
    assert wrong.warnings == ["did you mean 'mill'? the log has mill, shop"]  # tables of the shop are left
    assert "stays" not in wrong.tables or wrong.tables["stays"] == []


def test_what_the_newer_parts_note_of_a_pipeline_goes_too(lived: Shop, declare: Callable[[str], None]) -> None:
    """Files that count, rows that wait to be sent, a long run, a subscription: a new incarnation begins with none of them."""
    others = rows(lived.log) - of(rows(lived.log), "shop") - of(rows(lived.log), "shop@1")
    for statement in (
        "INSERT INTO onlyonce_private.files (instance, output, incarnation, batch_id, partition, shard, shards, "
        "place, temporary, "
        "name, rows, bytes, checksum) VALUES ('shop', 'per_shop', 'shop/per_shop/1', 0, 0, 0, 1, 'shop/per_shop', 't', "
        "'n-{pane}', 1, 1, 'c')",
        "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, payload) "
        "VALUES ('shop', 'per_shop', 'shop/per_shop/1/0/per_shop/0', 0, gen_random_uuid(), '{}')",
        "INSERT INTO onlyonce_private.epochs (incarnation, epoch) VALUES ('shop/per_shop/deliver', 1)",
        "INSERT INTO onlyonce_private.long_runs (instance) VALUES ('shop')",
        "INSERT INTO onlyonce_private.subscriptions (pipeline, subscription) VALUES ('shop', "
        "'projects/p/subscriptions/s')",
    ):
        lived.log.rows(statement)
    declare(NONE)

    told = drop.main(["shop"])
    drop.main(["shop", "--yes"])

    assert (told.facts["files"], told.facts["not sent"]) == (1, 1)
    assert rows(lived.log) == others


def test_a_new_incarnation_does_not_write_beside_the_rows_that_were_left(
    lived: Shop, declare: Callable[[str], None]
) -> None:
    """Until the same command has taken them too, it is refused with that command."""
    declare(NONE)
    drop.main(["shop", "--yes"])

    with pytest.raises(Refused, match="shop, which was dropped") as refused:
        refuse_left(lived.log)
    assert "onlyonce drop shop --tables --yes" in refused.value.hint

    drop.main(["shop", "--tables", "--yes"])

    refuse_left(lived.log)
    assert notes(lived.log) == {}
    assert lived.log.rows("SELECT to_regclass('results.total'), to_regclass('results.balance')") == [(None, None)]
    assert not (settings.tables_dir() / "shop" / "per_shop").exists()


@pytest.mark.parametrize("ours", [True, False])
def test_what_a_delta_table_has_deleted_goes_with_it_and_nobody_elses_table_does(
    lived: Shop, declare: Callable[[str], None], ours: bool
) -> None:
    """Also what a killed drop has left of it."""
    declare(NONE)
    table = settings.tables_dir() / "shop" / "per_shop"
    kept = beside(table)
    if ours:
        deleted_keys.made(table)
    else:
        write_deltalake(str(kept), pa.table({"id": ["x"]}))
    half = kept.with_name(f"{removal.GONE}{kept.name}")
    if ours:
        half.mkdir()
    drop.main(["shop", "--tables", "--yes"])
    assert (table.exists(), kept.exists(), half.exists()) == (False, not ours, False)


def test_a_table_that_another_pipeline_writes_to_stays(lived: Shop, declare: Callable[[str], None]) -> None:
    """Also with --tables, and nothing is noted against that pipeline."""
    declare(SHOP_AS.replace("NAME", "mill"))
    lived.log.rows("DELETE FROM onlyonce_private.targets WHERE instance = 'shop' RETURNING 1")
    mill = declarations.load()["mill"]
    for place in targets(mill, "mill"):
        Targets(lived.log.database).claim("mill", place, Place(place), place)

    drop.main(["shop", "--tables", "--yes"])

    assert lived.log.rows("SELECT n FROM results.balance") == [(1,)]
    assert notes(lived.log) == {}


@pytest.mark.parametrize("owner", [("shop", "newer"), ("mill", "per_shop")])
@pytest.mark.parametrize("spelled", ["shop/per_shop", "shop//per_shop", "WHOLE"])
def test_a_table_that_another_output_has_by_now_stays(
    lived: Shop, declare: Callable[[str], None], owner: tuple[str, str], spelled: str
) -> None:
    """Of the same pipeline or of another, however its place is spelled."""
    folder = settings.home() / "tables" / "shop" / "per_shop"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.parquet").write_text("rows")
    declare(NONE)
    lived.log.rows("DELETE FROM onlyonce_private.targets WHERE instance = 'shop' RETURNING 1")
    place = f"delta:{folder if spelled == 'WHOLE' else spelled}"
    Targets(lived.log.database).claim(*owner, Place(place), declared_identity(place))

    drop.main(["shop", "--output", "per_shop", "--tables", "--yes"])

    assert (folder / "rows.parquet").exists()
    assert notes(lived.log) == {}


def test_a_drop_of_a_folder_that_is_a_link_removes_what_it_leads_to(tmp_path: Path) -> None:
    """The folder on its mount, then the link. A killed drop is finished by the next one."""
    real, link = tmp_path / "mount" / "table", tmp_path / "table"
    real.mkdir(parents=True)
    (real / "rows.parquet").write_text("rows")
    link.symlink_to(real)

    removal.remove(link)

    assert [*tmp_path.rglob("*")] == [tmp_path / "mount"]
    link.symlink_to(real)
    removal.remove(link)
    assert not link.is_symlink()


def test_a_table_that_another_pipeline_only_declares_keeps_it_from_writing_beside_the_old_rows(
    lived: Shop, declare: Callable[[str], None]
) -> None:
    """It has never written there: what is there are rows of the dropped pipeline, which --tables removes."""
    declare(SHOP_AS.replace("NAME", "mill"))

    drop.main(["shop", "--yes"])

    with pytest.raises(Refused, match=r"has the rows of shop"):
        Drops(lived.log.database).refuse_left("mill", [*targets(declarations.load()["mill"], "mill")])
    drop.main(["shop", "--tables", "--yes"])
    Drops(lived.log.database).refuse_left("mill", [*targets(declarations.load()["mill"], "mill")])
    assert lived.log.rows("SELECT to_regclass('results.balance')::text") == [(None,)]


def test_check_says_that_no_run_begins(
    lived: Shop, declare: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its first line: what is declared is right, and the log has the rows that a drop has left. As `plan` says."""
    declare(NONE)
    drop.main(["shop", "--yes"])
    monkeypatch.setattr(checking, "checked", lambda *_: {"shop": Checked(asked_spark=False, wrong={}, staged={})})

    result = CliRunner().invoke(app, ["check", "shop", "--pipelines", SHOP])

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "what is declared is right, but no run of shop begins"
    assert "no run begins: " in result.stdout + result.stderr

    [told] = plan.made(lived.log.database, declarations.load([Path(SHOP)])["shop"]).unknown
    assert re.match(r"no run begins: .* has the rows of shop, which was dropped", told)
    with pytest.raises(Refused, match="which was dropped"):
        plan.main(["shop", "--yes", "--pipelines", SHOP])


def test_check_says_which_table_is_anothers(lived: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output of another pipeline has claimed it, so no run writes there, and no step of `plan` helps."""
    pipeline = declarations.load([Path(SHOP)])["shop"]
    taken = dict(zip([one.name for one in pipeline.outputs], targets(pipeline, "shop"), strict=True))["total"]
    lived.log.rows("DELETE FROM onlyonce_private.targets")
    Targets(lived.log.database).claim("mill", "sums", Place(taken), taken)
    monkeypatch.setattr(checking, "checked", lambda *_: {"shop": Checked(asked_spark=False, wrong={}, staged={})})

    result = CliRunner().invoke(app, ["check", "shop", "--pipelines", SHOP])

    assert result.exit_code == 64
    [_, what, _, hint] = result.stderr.splitlines()
    assert re.fullmatch(r".*/shop\.py:\d+: output total: results\.total belongs to mill/sums", what)
    assert "if you no longer need mill/sums: " in hint
    assert "`onlyonce drop mill --output sums --tables`, which deletes that table and its rows" in hint
    [told] = plan.made(lived.log.database, pipeline).unknown
    assert "belongs to mill/sums, so no run writes there: give this output another target" in told
    lived.log.rows("UPDATE onlyonce_private.targets SET instance = 'shop', output = 'in_all' RETURNING 1")
    renamed = CliRunner().invoke(app, ["check", "shop", "--pipelines", SHOP])
    assert renamed.exit_code == 64
    assert "next: if total is a new name of in_all, put name='in_all' back. Else give this output" in renamed.stderr


SHOP_AS = (
    "import dataclasses\nfrom tests.support.shop import SHOP\nPIPELINES = [dataclasses.replace(SHOP, name='NAME')]\n"
)


def test_an_output_goes_alone(lived: Shop, declare: Callable[[str], None]) -> None:
    """Its rows and folders go; receive and the other outputs keep theirs to the last row."""
    declare(WITHOUT_BALANCE)
    before = rows(lived.log)
    gone = of(before, "balance") + of(before, "shop/balance/1")

    drop.main(["shop", "--output", "balance", "--yes"])

    assert gone
    assert rows(lived.log) == Counter({row: n for row, n in before.items() if row not in gone})
    checkpoints = settings.data_dir("shop") / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"receive", "per_shop"}
    assert not (settings.data_dir("shop") / "staged" / "balance").exists()
    assert notes(lived.log) == {"postgres::results.balance": "left"}


def test_units_in_a_sinks_own_database_go_too(
    lived: Shop, declare: Callable[[str], None], new_log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a new incarnation would take its own first batches for written. Without its URL nothing is begun."""
    other = new_log()
    migrate_authority(other.url)
    unit = (
        "INSERT INTO onlyonce_private.units (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind)"
    )
    for incarnation in ("shop/balance/1", "mill/balance/1"):
        ask(other.url, f"{unit} VALUES ('{incarnation}/0/balance/0', '{incarnation}', 0, 'balance', 0, 1, 't', 'data')")
    declare(ELSEWHERE)
    elsewhere = declarations.load()["shop"]
    now = incarnations.Declared("shop", "balance", "elsewhere", declarations.parts(elsewhere, "balance"))
    Declarations(lived.log.database).keep(now)
    declare(NONE)
    before = rows(lived.log)
    with pytest.raises(Refused, match="TEST_OTHER_DATABASE"):
        drop.main(["shop", "--yes"])
    assert rows(lived.log) == before

    monkeypatch.setenv("TEST_OTHER_DATABASE", other.url)
    drop.main(["shop", "--yes"])

    assert ask(other.url, "SELECT incarnation FROM onlyonce_private.units") == [("mill/balance/1",)]


KILLS = [("drop-before-log", 1), ("drop-after-log", 1), ("drop-after-rename", 1), ("drop-after-place", 2)]


@pytest.mark.parametrize("point, nth", KILLS)
def test_a_kill_at_any_point_does_not_show(
    lived: Shop, declare: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str, nth: int
) -> None:
    """Half dropped it can't be run; the same command then leaves what a drop without a kill leaves."""
    declare(NONE)
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    others = rows(lived.log) - of(rows(lived.log), "shop") - of(rows(lived.log), "shop@1")
    (tmp_path / "points").mkdir()
    script = "from onlyonce.operate import drop; drop.main(['shop', '--tables', '--yes'])"
    code = script_apart(
        script, ONLYONCE_FAILPOINTS=f"{point}:{nth}:kill-process", ONLYONCE_FAILPOINT_DIR=str(tmp_path / "points")
    )

    assert code == -signal.SIGKILL
    if point != "drop-before-log":
        with pytest.raises(Refused, match="has not ended") as refused:
            refuse_left(lived.log)
        assert "onlyonce drop shop" in refused.value.hint
        assert {row["finding"] for row in doctor.main(["--grace=0"]).tables["findings"]} == {"begun drop"}

    drop.main(["shop", "--tables", "--yes"])

    assert rows(lived.log) == others
    assert notes(lived.log) == {}
    assert files() == {"data/mill", "inbox/shop", "tables/shop"}
    assert list((settings.tables_dir() / "shop").iterdir()) == []
    assert lived.log.rows("SELECT to_regclass('results.total'), to_regclass('results.balance')") == [(None, None)]


def test_a_driver_of_before_can_commit_nothing(lived: Shop, declare: Callable[[str], None]) -> None:
    """Its epoch is gone, whatever it still believes."""
    driver = lived.drivers["receive"]
    declare(NONE)
    drop.main(["shop", "--yes"])

    with pytest.raises(Exception, match="epoch None is running"):
        Incarnations(lived.log.database).check_epoch(driver.incarnation, driver.epoch)


def test_the_command_has_the_exit_codes_of_the_others(lived: Shop, declare: Callable[[str], None]) -> None:
    """64 while it is declared, 0 when it is done, JSON on standard output alone."""
    cli = CliRunner()
    assert cli.invoke(app, ["drop", "shop", "--yes"]).exit_code == Refused.exit_code
    declare(NONE)

    result = cli.invoke(app, ["drop", "shop", "--yes", "--json"])

    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["facts"]["done"] is True
