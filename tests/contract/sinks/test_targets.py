"""A table or folder has the rows of one output of one instance, however it is spelled. On the real PostgreSQL."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Delta, FileSink, MySQL, Output, Pipeline, Postgres, Sink
from onlyonce.commitlog import units
from onlyonce.commitlog.units import Authorities
from onlyonce.context import RunContext
from onlyonce.core import ownership, stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.database.connect import run
from onlyonce.operate import drop
from onlyonce.sinks import target_kinds, targets
from onlyonce.sinks.files.file_stores import _open, folder_of
from tests.contract.conftest import Log, shared
from tests.contract.shop import SHOP
from tests.support import s3
from tests.support.mariadb import MariaDB
from tests.support.shared_server import SharedServer

__all__ = ["shared"]
ELSEWHERE = "TEST_SECOND_NAME"
"""A variable that holds the URL of the platform's own database, by another address."""


def pipeline(name: str, sink: Sink) -> Pipeline:
    """One with one output `all`, to a sink."""
    shop = declarations.load([Path(SHOP)])["shop"]
    return dataclasses.replace(shop, name=name, outputs=(Output(name="all", transform="a:b", sink=sink),))


def claim(log: Log, name: str, sink: Sink, instance: str | None = None) -> None:
    """What a run does before it makes the table of its output."""
    declared, no_session = pipeline(name, sink), Any
    context = RunContext(no_session, declared, instance or name, "run", log.database)  # type: ignore[arg-type]
    with targets.claimed(context, declared.outputs[0]):
        make(log, sink)


def make(log: Log, sink: Sink) -> None:
    """The table of a sink, where its writer would make it."""
    if isinstance(sink, Delta):
        rows = pa.table({"n": [1]})
        write_deltalake(str(settings.tables_dir() / (sink.path or "")), rows, mode="ignore")
    elif isinstance(sink, Postgres):
        schema = sink.table.split(".")[0]
        log.rows(
            f"CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE IF NOT EXISTS "
            f'{schema}."{sink.table[len(schema) + 1 :]}" ()'
        )
    elif isinstance(sink, MySQL):
        run(
            units.database_of(sink.connection),
            lambda conn: conn.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {sink.table} (n INT)"),
        )


def spellings(log: Log) -> list[tuple[Sink, Sink]]:
    """Pairs that are one target, or one inside the other."""
    return [
        (Delta(path="a/all"), Delta(path="a//./all/")),
        (Delta(path="a/all"), Delta(path=str(settings.tables_dir() / "a" / "all"))),
        (Delta(path="a/all"), Delta(path="link/all")),
        (Delta(path="a/all"), Delta(path="a")),
        (Delta(path="a"), Delta(path="a/all")),
        (Delta(path="a/all"), FileSink(path="../tables/a/all")),
        (FileSink(path="s3://bucket/all?region=us-east-1"), FileSink(path="s3a://bucket//all/")),
        (Postgres(table="results.all"), Postgres(table="results.all", connection=ELSEWHERE)),
    ]


def target_of(sink: Any) -> str:
    """Return the folder, URL or table of a sink."""
    return str(sink.table if isinstance(sink, Postgres | MySQL) else sink.path)


def unnote(sink: FileSink) -> None:
    """Remove the note of a folder or prefix."""
    place = target_of(sink)
    if "://" in place:
        system, root = _open(place)
        system.delete_file(f"{root}/{ownership.FILE}")
    else:
        (folder_of(place) / ownership.FILE).unlink()


@pytest.fixture(scope="module")
def store() -> Iterator[s3.S3]:
    """A server of S3 with the buckets of these tests."""
    with s3.moto() as server:
        for name in ("bucket", "results"):
            httpx.put(f"{server.url}/{name}").raise_for_status()
        yield server


@pytest.fixture
def platform(shared: Log, store: s3.S3, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A platform where nobody has a target; its database has a second address, a folder of its tables a link."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    shared.rows("TRUNCATE onlyonce_private.targets")
    monkeypatch.setenv(ELSEWHERE, shared.url.replace("127.0.0.1", "localhost"))
    (settings.tables_dir() / "a").mkdir(parents=True, exist_ok=True)
    link = settings.tables_dir() / "link"
    if not link.exists():
        link.symlink_to(settings.tables_dir() / "a")
    return shared


@pytest.mark.parametrize("number", range(8))
def test_a_target_of_another_pipeline_is_refused_at_run_with_its_owner(platform: Log, number: int) -> None:
    """Whichever spelling came first; the owner itself goes on."""
    first, second = spellings(platform)[number]
    claim(platform, "mill", first)
    claim(platform, "mill", first)

    with pytest.raises(Refused, match="belongs to mill/all") as refused:
        claim(platform, "shop", second)

    assert "onlyonce drop mill --output all" in refused.value.hint
    assert platform.rows("SELECT instance FROM onlyonce_private.targets") == [("mill",)]


@pytest.mark.parametrize("number", [n for n in range(8) if n != 7])
def test_two_declared_outputs_of_one_target_are_refused_where_they_are_read(
    platform: Log, number: int, tmp_path: Path
) -> None:
    """Before any run, without a database: so a database is known by its variable or address there."""
    first, second = spellings(platform)[number]
    source = (
        "import dataclasses\nfrom onlyonce.api.pipeline import *\nfrom tests.support.shop import SHOP\n"
        "def of(name, sink):\n"
        "    return dataclasses.replace(SHOP, name=name, outputs=(Output(name='all', transform='a:b', sink=sink),))\n"
        f"PIPELINES = [of('mill', {first!r}), of('shop', {second!r})]\n"
    ).replace("import *", "import Delta, FileSink, Output, Postgres")
    (tmp_path / "declared.py").write_text(source)

    with pytest.raises(Refused, match="write to one target") as refused:
        declarations.load([tmp_path / "declared.py"])

    assert "mill/all" in refused.value.what
    assert "shop/all" in refused.value.what


def test_targets_that_only_look_alike_are_two(platform: Log) -> None:
    """A name that begins with another one's; capitals, which PostgreSQL keeps; the same table name in two schemas;
    a bounded run, which has a target of its own."""
    sinks: list[Sink] = [
        Delta(path="a/all"), Delta(path="a/all2"), Postgres(table="results.all"), Postgres(table="results.All"),
        Postgres(table="other.all"), FileSink(path="a/all"), FileSink(path="memory://bucket/all"),
    ]  # fmt: skip
    for number, sink in enumerate(sinks):
        claim(platform, f"p{number}", sink)
        claim(platform, f"p{number}", sink, instance=f"p{number}@1")
    assert platform.rows("SELECT count(*) FROM onlyonce_private.targets") == [(2 * len(sinks),)]


def test_another_declaration_lets_the_old_target_go(platform: Log) -> None:
    """Once the output runs with it; who waited may have it then."""
    claim(platform, "mill", Delta(path="a/all"))
    claim(platform, "mill", Delta(path="a/new"))
    claim(platform, "shop", Delta(path="a/all"))
    with pytest.raises(Refused, match="belongs to shop/all"):
        claim(platform, "mill", Delta(path="a/all"))


def test_a_drop_lets_a_target_go_with_its_rows(platform: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While the table is left with its rows nobody writes beside them; a drop with the tables frees it."""
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))
    mill = pipeline("mill", Delta(path="a/all"))
    monkeypatch.setattr(declarations, "transform", lambda _: claim)
    platform.start("mill", "all")
    no_session: Any = None
    RunContext(no_session, mill, "mill", "run", platform.database).kept_declaration("all")
    claim(platform, "mill", Delta(path="a/all"))

    drop.main(["mill", "--yes"])
    with pytest.raises(Refused, match="belongs to mill/all"):
        claim(platform, "shop", Delta(path="a//all"))
    drop.main(["mill", "--tables", "--yes"])

    claim(platform, "shop", Delta(path="a//all"))


@pytest.mark.parametrize(
    "sink", [Delta(path="gone/all"), Postgres(table="gone.all"), Postgres(table="gone.All", connection=ELSEWHERE)]
)
def test_a_table_that_was_deleted_is_not_made_again_without_a_word(platform: Log, sink: Sink) -> None:
    """The log says that all its rows are there, and the stream would write the newest ones only.

    A new target is another matter.
    """
    claim(platform, "mill", sink)
    claim(platform, "mill", sink)
    shutil.rmtree(settings.tables_dir() / "gone", ignore_errors=True)
    platform.rows("DROP SCHEMA IF EXISTS gone CASCADE")

    with pytest.raises(Refused, match="is gone") as refused:
        claim(platform, "mill", sink)

    assert "onlyonce drop mill --output all --tables" in refused.value.hint
    claim(platform, "mill", Delta(path="gone/other"))


def test_a_delta_table_that_was_made_again_is_refused(platform: Log) -> None:
    """A table of the same form in the old one's place has none of its rows and none of its transactions.

    A copy of the old one has all.
    """
    sink = Delta(path="gone/all")
    path, copy = settings.tables_dir() / "gone" / "all", settings.tables_dir() / "gone" / "copy"
    claim(platform, "mill", sink)
    shutil.copytree(path, copy)
    shutil.rmtree(path)
    make(platform, sink)

    with pytest.raises(Refused, match="is another table than the one that the output wrote to") as refused:
        claim(platform, "mill", sink)

    assert "onlyonce drop mill --output all --tables" in refused.value.hint
    shutil.rmtree(path)
    copy.rename(path)
    claim(platform, "mill", sink)


@pytest.fixture
def later(platform: Log, server: SharedServer, mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A second platform, with a database of its own.

    Its results go where those of the first go: one home, one PostgreSQL, one MySQL.
    """
    monkeypatch.setenv("TEST_RESULTS", platform.url)
    monkeypatch.setenv("TEST_MYSQL", mariadb.url(mariadb.new_database()))
    return Log(server, server.new_migrated())


RESULTS = [
    Delta(path="results/all"),
    Postgres(table="results.all", connection="TEST_RESULTS"),
    MySQL(table="all_results", connection="TEST_MYSQL"),
]
FILES = [FileSink(path="results/files"), FileSink(path="memory://results/files"), FileSink(path="s3://results/files")]


@pytest.mark.parametrize("sink", [*RESULTS, *FILES], ids=lambda sink: f"{type(sink).__name__} {target_of(sink)}")
def test_results_of_another_platform_are_refused_by_name(platform: Log, later: Log, sink: Any) -> None:
    """The table says whose it is. Without its note another platform may write there, and the first one no more."""
    claim(platform, "mill", sink)
    platform.rows("TRUNCATE onlyonce_private.targets")
    claim(platform, "mill", sink)

    with pytest.raises(Refused, match="holds the results of another platform") as refused:
        claim(later, "mill", sink)
    if isinstance(sink, FileSink):
        unnote(sink)
    elif isinstance(sink, Delta):
        DeltaTable(str(settings.tables_dir() / "results" / "all")).alter.set_table_properties(
            {ownership.PROPERTY: ""}, raise_if_not_exists=False
        )
    else:
        statement = (
            "COMMENT ON TABLE results.all IS NULL"
            if isinstance(sink, Postgres)
            else "ALTER TABLE all_results COMMENT ''"
        )
        run(units.database_of(sink.connection), lambda conn: conn.exec_driver_sql(statement))
    claim(later, "mill", sink)

    assert target_of(sink) in refused.value.what
    with pytest.raises(Refused, match="holds the results of another platform"):
        claim(platform, "mill", sink)


@pytest.mark.parametrize("sink", FILES[::2], ids=target_of)
def test_of_two_platforms_at_once_one_gets_the_folder(platform: Log, later: Log, sink: FileSink) -> None:
    """Each has seen that nothing is noted; the second to write its note finds the first one's."""
    declared, no_session = pipeline("mill", dataclasses.replace(sink, path=f"{sink.path}/at-once")), Any
    first, second = (RunContext(no_session, declared, "mill", "run", log.database) for log in (platform, later))  # type: ignore[arg-type]

    with (
        pytest.raises(Refused, match="holds the results of another platform"),
        targets.claimed(first, declared.outputs[0]),
        targets.claimed(second, declared.outputs[0]),
    ):
        pass


@pytest.mark.parametrize("sink", RESULTS[1:], ids=lambda sink: type(sink).__name__)
def test_a_teams_comment_on_its_table_stays(platform: Log, later: Log, sink: Any) -> None:
    """It is no note, so another platform is not refused for it."""
    make(platform, sink)
    statement = (
        "COMMENT ON TABLE results.all IS 'ours'"
        if isinstance(sink, Postgres)
        else "ALTER TABLE all_results COMMENT 'ours'"
    )
    run(units.database_of(sink.connection), lambda conn: conn.exec_driver_sql(statement))
    claim(platform, "team", sink)
    claim(later, "team", sink)

    place = Place(sink.target("team/all"))
    assert target_kinds.functions(place).note(place) == "ours"


def test_two_platforms_share_no_transaction_id(platform: Log, later: Log, tmp_path: Path) -> None:
    """An incarnation of the same name, in one Delta table: what one platform has committed makes no commit of the other one
    a repetition."""
    ids = [
        stored_names.result_transaction(Authorities(log.database).identity(), "shop/per_shop/1", "per_shop")
        for log in (platform, later)
    ]
    mine = CommitProperties(app_transactions=[Transaction(ids[0], 7)])
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [1]}), commit_properties=mine)
    table = DeltaTable(str(tmp_path / "table"))

    assert [table.transaction_version(one) for one in ids] == [7, None]
