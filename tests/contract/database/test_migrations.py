"""Migrations: once each, under a lock, refused when they or the database are not what they were."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onlyonce.database import migrate as module
from onlyonce.database.connect import Database, transaction
from onlyonce.database.migrate import migrate, migrate_authority, migrations
from onlyonce.model.errors import Refused
from tests.contract.conftest import Log, ask
from tests.support.platform import ROOT, Server
from tests.support.steps import Stage

NAMES = [one.name for folder in ("authority", "platform") for one in migrations(folder)]
OBJECTS = """
    SELECT c.oid::regclass::text, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace::regnamespace::text LIKE 'onlyonce%' AND a.attnum > 0
"""
JOURNAL = "SELECT name, checksum, applied_at FROM onlyonce_private.migrations"


@pytest.fixture
def empty(server: Server) -> Any:
    """The URL of a database with nothing in it."""
    name = server.new_database()
    yield server.url("writer", name)
    server.drop(name)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the SQL that a test may change."""
    copied = shutil.copytree(ROOT / "sql", tmp_path / "sql")
    monkeypatch.setattr(module, "FOLDER", copied)
    return copied


def test_the_first_time_applies_every_file_in_order(empty: str) -> None:
    """The authority's first, then the platform's, then the views."""
    assert migrate(empty) == [*NAMES, "inspect"]
    assert sorted(name for (name,) in ask(empty, "SELECT name FROM onlyonce_private.migrations")) == sorted(
        [*NAMES, "inspect"]
    )


def test_the_second_time_changes_nothing(empty: str) -> None:
    """Neither an object nor a line of the journal."""
    migrate(empty)
    before = Counter(ask(empty, OBJECTS)), Counter(ask(empty, JOURNAL))

    assert migrate(empty) == []
    assert (Counter(ask(empty, OBJECTS)), Counter(ask(empty, JOURNAL))) == before


def test_migrations_at_once_apply_each_file_once(empty: str) -> None:
    """One does it; the others wait for its lock and find nothing to do."""
    applied: list[list[str]] = []
    barrier = threading.Barrier(4)

    def start() -> None:
        barrier.wait()
        applied.append(migrate(empty))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(applied) == [[], [], [], [*NAMES, "inspect"]]


def test_a_migration_waits_for_the_one_under_way(log: Log) -> None:
    """The lock is taken before anything is read: what the first one does is seen by the second."""

    def steps(session: str) -> Any:
        with transaction(Database(log.url, session)) as connection:
            module._apply(connection, ["authority", "platform"], views=True)
            yield
        yield

    with Stage(log.url) as stage:
        first, second = stage.enter("first", steps), stage.enter("second", steps)
        through = [stage.step(first), stage.step(second)]
        first.finish()
        second.finish()

    assert through == [True, False]
    assert (first.error, second.error) == (None, None)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_changed_after_it_was_applied_is_refused(log: Log, files: Path, name: str) -> None:
    """By name, and nothing else is applied: not the files after it, not the views."""
    path = files / "migrations" / f"{name}.sql"
    path.write_text(path.read_text() + "\n-- a remark\n")
    (files / "migrations" / "platform" / "9999_later.sql").write_text("CREATE TABLE onlyonce_private.later ();")
    (files / "inspect.sql").write_text("CREATE VIEW onlyonce.more AS SELECT 1 AS n;")
    before = Counter(log.rows(OBJECTS)), Counter(log.rows(JOURNAL))
    with pytest.raises(Refused, match=f"migration {name} was applied in another version") as refusal:
        migrate(log.url)

    assert "new numbered file" in refusal.value.hint
    assert (Counter(log.rows(OBJECTS)), Counter(log.rows(JOURNAL))) == before


@pytest.mark.parametrize("apply", [migrate, migrate_authority])
def test_a_database_with_newer_migrations_is_refused(log: Log, apply: Callable[[str], list[str]]) -> None:
    """An older version does not work on tables that it does not know: the platform's database or a sink's."""
    log.rows("INSERT INTO onlyonce_private.migrations (name, checksum) VALUES ('authority/0099_future', 'x')")
    before = Counter(log.rows(JOURNAL))
    with pytest.raises(Refused, match="authority/0099_future") as refusal:
        apply(log.url)

    assert "newer onlyonce" in refusal.value.hint
    assert Counter(log.rows(JOURNAL)) == before


def test_a_later_file_is_applied_alone(log: Log, files: Path) -> None:
    """What was applied before is left as it is."""
    (files / "migrations" / "platform" / "9999_later.sql").write_text("CREATE TABLE onlyonce_private.later (n int);")

    assert migrate(log.url) == ["platform/9999_later"]
    assert log.rows("SELECT * FROM onlyonce_private.later") == []


def test_a_migration_that_fails_leaves_nothing(log: Log, files: Path) -> None:
    """All files of one call are one transaction: the ones before it are rolled back too."""
    folder = files / "migrations" / "platform"
    (folder / "9998_good.sql").write_text("CREATE TABLE onlyonce_private.good ();")
    (folder / "9999_bad.sql").write_text("CREATE TABLE onlyonce_private.bad (); SELECT 1 / 0;")
    before = Counter(log.rows(OBJECTS)), Counter(log.rows(JOURNAL))
    with pytest.raises(Exception, match="division by zero"):
        migrate(log.url)

    assert (Counter(log.rows(OBJECTS)), Counter(log.rows(JOURNAL))) == before


def test_changed_views_are_made_anew_and_readers_may_go_on(log: Log, files: Path) -> None:
    """The views follow their file, with the reader's rights on them."""
    path = files / "inspect.sql"
    path.write_text(path.read_text().replace("the declared pipeline", "the pipeline as declared"))

    assert migrate(log.url) == ["inspect"]
    assert migrate(log.url) == []
    assert ask(log.server.url("reader", log.name), "SELECT count(*) FROM onlyonce.batches") == [(0,)]


def test_a_sinks_database_gets_epochs_units_and_an_id_and_nothing_else(empty: str) -> None:
    """No views, no log; and when it is the platform's own it stays as it is."""
    applied = migrate_authority(empty)
    tables = ask(empty, "SELECT tablename FROM pg_tables WHERE schemaname = 'onlyonce_private'")

    assert applied == [name for name in NAMES if name.startswith("authority/")]
    assert Counter(tables) == Counter([("epochs",), ("units",), ("this_database",), ("owners",), ("migrations",)])
    assert migrate_authority(empty) == []
    assert migrate(empty) == [*[name for name in NAMES if not name.startswith("authority/")], "inspect"]
    assert migrate_authority(empty) == []


def test_every_private_table_has_a_comment(log: Log) -> None:
    """Also those that only the platform sees; the partitions of the catalog and the journal are its own."""
    silent = log.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'onlyonce_private'::regnamespace AND relkind IN ('r', 'p') "
        "AND NOT relispartition AND obj_description(oid) IS NULL AND relname <> 'migrations'"
    )

    assert silent == []
