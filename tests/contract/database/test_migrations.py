"""The tables of a database: made once, under a lock, and refused in another format."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onlyonce.core.errors import Refused
from onlyonce.database import migrate as module
from onlyonce.database import statements
from onlyonce.database.connect import Database, transaction
from onlyonce.database.migrate import migrate, migrate_authority
from tests.contract.conftest import Log, ask
from tests.support.platform import ROOT, Server
from tests.support.steps import Stage

NAMES = ["authority", "platform"]
OBJECTS = """
    SELECT c.oid::regclass::text, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace::regnamespace::text LIKE 'onlyonce%' AND a.attnum > 0
"""
JOURNAL = (
    "SELECT part, format, made_at::text FROM onlyonce_private.formats UNION ALL SELECT 'views', checksum, "
    "NULL FROM onlyonce_private.views_made"
)


FORMATS = "SELECT part, format FROM onlyonce_private.formats"


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


def test_new_database_gets_each_part_and_its_format(empty: str) -> None:
    """The authority first, then the platform, then the views, which are no part of the format."""
    assert migrate(empty) == [*NAMES, "views"]
    assert Counter(ask(empty, FORMATS)) == Counter((name, statements.FORMAT) for name in NAMES)
    assert Counter(ask(empty, "SELECT part, format FROM onlyonce.formats")) == Counter(ask(empty, FORMATS))


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

    assert sorted(applied) == [[], [], [], [*NAMES, "views"]]


def test_a_migration_waits_for_the_one_under_way(log: Log) -> None:
    """The lock is taken before anything is read: what the first one does is seen by the second."""

    def steps(session: str) -> Any:
        with transaction(Database(log.url, session)) as connection:
            module._apply(connection, ["authority", "platform"], with_views=True)
            yield
        yield

    with Stage(log.url) as stage:
        first, second = stage.enter("first", steps), stage.enter("second", steps)
        through = [stage.step(first), stage.step(second)]
        first.finish()
        second.finish()

    assert through == [True, False]
    assert (first.error, second.error) == (None, None)


@pytest.mark.parametrize("apply", [migrate, migrate_authority])
@pytest.mark.parametrize("made", ["dev-00000000", "2", "migrations"])
def test_database_of_another_format_is_refused(log: Log, apply: Callable[[str], list[str]], made: str) -> None:
    """The platform's database or a sink's; one with migrations has no format at all. Nothing in it changes."""
    if made == "migrations":
        log.rows("CREATE TABLE onlyonce_private.migrations (name text); DROP TABLE onlyonce_private.formats CASCADE")
    else:
        log.rows(f"UPDATE onlyonce_private.formats SET format = '{made}' WHERE part = 'authority'")
    before = Counter(log.rows(OBJECTS))
    with pytest.raises(Refused) as refusal:
        apply(log.url)
    with pytest.raises(Refused), transaction(Database(log.url)) as connection:
        module.missing(connection)

    assert (statements.OLD if made == "migrations" else made) in refusal.value.what
    assert statements.FORMAT in refusal.value.what
    assert "stay readable" in refusal.value.data
    assert "start-over.md" in refusal.value.hint
    assert Counter(log.rows(OBJECTS)) == before


def test_parts_that_fail_leave_nothing(empty: str, files: Path) -> None:
    """All parts of one call are one transaction."""
    path = files / "views" / "9_reader.sql"
    path.write_text(path.read_text() + "SELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        migrate(empty)

    assert ask(empty, OBJECTS) == []


def test_changed_views_are_made_anew_and_readers_may_go_on(log: Log, files: Path) -> None:
    """The views follow their file, with the reader's rights on them."""
    path = files / "views" / "1_batches.sql"
    path.write_text(path.read_text().replace("the declared pipeline", "the pipeline as declared"))

    assert migrate(log.url) == ["views"]
    assert migrate(log.url) == []
    assert ask(log.server.url("reader", log.name), "SELECT count(*) FROM onlyonce.batches") == [(0,)]


OURS = (
    "SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'onlyonce'::regnamespace AND relkind "
    "= 'v' ORDER BY 1"
)
KEPT = """
    SELECT c.oid::regclass::text, pg_get_viewdef(c.oid), c.relacl::text FROM pg_class c
    WHERE relnamespace IN ('onlyonce'::regnamespace, 'team'::regnamespace) AND relkind = 'v'
"""
APPENDED = ("SELECT part, format, made_at FROM", "SELECT part, format, made_at, 1 AS appended FROM")
RENAMED = ("SELECT part, format, made_at FROM", "SELECT part AS of_part, format, made_at FROM")


@pytest.fixture
def depended_on(log: Log) -> list[str]:
    """Our views. A team has a view and a grant on each."""
    ours = [name for (name,) in log.rows(OURS)]
    log.rows("CREATE SCHEMA team")
    for name in ours:
        log.rows(
            f"CREATE VIEW team.{name.removeprefix('onlyonce.')} AS SELECT * FROM {name}; GRANT SELECT ON {name} TO "
            "pg_monitor"
        )
    return ours


def test_replaced_views_keep_a_teams_views_and_grants(log: Log, files: Path, depended_on: list[str]) -> None:
    """On each view; a column that is appended is there."""
    before = Counter(row for row in log.rows(KEPT) if row[0] != "onlyonce.formats")
    path = files / "views" / "7_operation.sql"
    path.write_text(path.read_text().replace(*APPENDED))

    assert migrate(log.url) == ["views"]
    assert Counter(row for row in log.rows(KEPT) if row[0] != "onlyonce.formats") == before
    assert log.rows("SELECT DISTINCT appended FROM onlyonce.formats") == [(1,)]
    assert log.rows("SELECT count(*) FROM team.formats") == [(2,)]
    assert len(depended_on) > 25


def test_view_that_cannot_be_replaced_is_refused_with_its_dependents(
    log: Log, files: Path, depended_on: list[str]
) -> None:
    """Nothing changes. Without them it is made again, with our own views on it."""
    before = Counter(log.rows(KEPT))
    path = files / "views" / "7_operation.sql"
    path.write_text(
        path.read_text()
        .replace(*RENAMED)
        .replace("COMMENT ON COLUMN onlyonce.formats.part", "COMMENT ON COLUMN onlyonce.formats.of_part")
    )
    with pytest.raises(Refused, match=r"the view onlyonce\.formats of this version has other columns") as refusal:
        migrate(log.url)

    for name in depended_on:
        assert f"the view team.{name.removeprefix('onlyonce.')} ({name})" in refusal.value.what
        assert f"the grant to pg_monitor ({name})" in refusal.value.what
    assert Counter(log.rows(KEPT)) == before
    log.rows("DROP SCHEMA team CASCADE; REVOKE ALL ON ALL TABLES IN SCHEMA onlyonce FROM pg_monitor")
    assert migrate(log.url) == ["views"]
    assert log.rows("SELECT of_part FROM onlyonce.formats ORDER BY 1") == [("authority",), ("platform",)]
    assert [name for (name,) in log.rows(OURS)] == depended_on
    assert ask(log.server.url("reader", log.name), "SELECT count(*) FROM onlyonce.batches") == [(0,)]


def test_a_sinks_database_gets_epochs_units_and_an_id_and_nothing_else(empty: str) -> None:
    """No views, no log; and when it is the platform's own it stays as it is."""
    applied = migrate_authority(empty)
    tables = ask(empty, "SELECT tablename FROM pg_tables WHERE schemaname = 'onlyonce_private'")

    assert applied == ["authority"]
    assert Counter(tables) == Counter(
        [("epochs",), ("units",), ("this_database",), ("owners",), ("locks",), ("formats",), ("views_made",)]
    )
    assert migrate_authority(empty) == []
    assert migrate(empty) == ["platform", "views"]
    assert migrate_authority(empty) == []


def test_every_private_table_has_a_comment(log: Log) -> None:
    """Also those that only the platform sees; the partitions of the catalog are its own."""
    silent = log.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'onlyonce_private'::regnamespace AND relkind IN ('r', 'p') "
        "AND NOT relispartition AND obj_description(oid) IS NULL"
    )

    assert silent == []
