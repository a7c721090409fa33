"""Each damage of a checkpoint, a lost state, a log from an older backup: refused with the way out, or healed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.run import reset
from tests.fault.test_kills import put_all
from tests.spark.run.test_incarnations import checkpoint
from tests.support import shop_oracle
from tests.support.check_shop import check
from tests.support.platform import Platform, Server, multiset

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@dataclass(frozen=True)
class Finished:
    """A platform that has run once, and what it takes to put it back as it was then."""

    platform: Platform
    server: Server
    saved: Path
    database: str

    def put_back(self, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its folder and a database, both as they were after that run; what Spark remembers of them is forgotten."""
        spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        shutil.rmtree(self.platform.home)
        shutil.copytree(self.saved, self.platform.home, symlinks=True)
        self.platform.enter(monkeypatch)
        self.use(copied(self.server, self.database), monkeypatch)

    def use(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the platform work with this database from now on."""
        url = self.server.url("writer", database)
        self.platform.environment["ONLYONCE_DATABASE_URL"] = url
        monkeypatch.setenv("ONLYONCE_DATABASE_URL", url)


def copied(server: Server, database: str) -> str:
    """A copy of a database, as a backup that is put back is one."""
    name = f"test_{uuid4().hex[:12]}"
    connection = psycopg2.connect(server.url("admin").replace("+psycopg2", ""))
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (database,))
    cursor.execute(f'CREATE DATABASE "{name}" TEMPLATE "{database}" OWNER onlyonce_writer')
    connection.close()
    return name


FILES = shop_oracle.sales(360, 3)


@pytest.fixture(scope="module")
def finished(server: Server, spark: object, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A platform with two files taken in and the third to come."""
    folder = tmp_path_factory.mktemp("finished")
    platform = Platform.make(server, folder / "home", "tests/support/shop.py")
    with pytest.MonkeyPatch.context() as patch:
        platform.enter(patch)
        put_all(platform, FILES[:2])
        platform.run("shop")
    shutil.copytree(platform.home, folder / "saved", symlinks=True)
    database = platform.environment["ONLYONCE_DATABASE_URL"].rsplit("/", 1)[1]
    return Finished(platform, server, folder / "saved", database)


@pytest.fixture
def again(finished: Finished, spark: object, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """The same, put back for this test."""
    finished.put_back(spark, monkeypatch)
    return finished


def last_of(folder: Path, kind: str) -> Path:
    """The file of the last batch in `offsets` or `commits`."""
    return max((folder / kind).glob("[0-9]*"), key=lambda path: int(path.name))


def edit(file: Path, change: Callable[[str], str]) -> None:
    """Another content, with Hadoop's checksum of it gone: as an editor or a copy leaves it."""
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_text(change(file.read_text()))


def cut_short(text: str) -> str:
    """Its last 40 characters are gone."""
    return text[:-40] if len(text) > 60 else text[: len(text) // 2]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "offsets cut short": lambda c: edit(last_of(c, "offsets"), cut_short),
    "offsets without their last line": lambda c: edit(last_of(c, "offsets"), lambda text: text.rsplit("\n", 1)[0]),
    "offsets empty": lambda c: edit(last_of(c, "offsets"), lambda _: ""),
    "offsets missing": lambda c: last_of(c, "offsets").unlink(),
    "offsets before the last missing": lambda c: (c / "offsets" / str(int(last_of(c, "offsets").name) - 1)).unlink(),
    "commits cut short": lambda c: edit(last_of(c, "commits"), cut_short),
    "commits empty": lambda c: edit(last_of(c, "commits"), lambda _: ""),
    "all commits missing": lambda c: shutil.rmtree(c / "commits"),
    "metadata missing": lambda c: (c / "metadata").unlink(),
    "metadata cut short": lambda c: edit(c / "metadata", cut_short),
    "metadata without an id": lambda c: edit(c / "metadata", lambda _: "{}"),
    "another query's folder": lambda c: edit(c / "metadata", lambda _: (c.parents[1] / "balance/1/metadata").read_text()),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_of_a_checkpoint_is_refused_before_anything_is_written(again: Finished, damage: str) -> None:
    """Whatever is cut, missing or swapped: the refusal names the new incarnation, and neither log nor `events` has changed."""
    platform = again.platform
    before = state_of(platform)
    DAMAGES[damage](checkpoint("receive"))
    platform.put("shop", "sales-0002.jsonl", FILES[2])

    for _ in range(2):
        with pytest.raises(Refused, match="onlyonce reset") as refusal:
            platform.run("shop", "--close")
        assert "nothing was read or written" in refusal.value.data

    assert state_of(platform) == before


def state_of(platform: Platform) -> Any:
    """Units, batches and versions of `events`."""
    units = multiset(platform.sql("SELECT unique_id, content_hash FROM onlyonce.commits"))
    batches = multiset(platform.sql("SELECT incarnation, batch, state FROM onlyonce.batches"))
    return units, batches, DeltaTable(str(settings.data_dir("shop") / "events")).version()


def test_a_lost_state_is_refused_and_a_new_incarnation_makes_it_again(again: Finished) -> None:
    """State files gone: Spark's error becomes a refusal with the way out, and after it no window lacks a row."""
    platform = again.platform
    shutil.rmtree(checkpoint("per_shop") / "state")
    platform.put("shop", "sales-0002.jsonl", FILES[2])

    with pytest.raises(Refused, match="onlyonce reset shop/per_shop"):
        platform.run("shop", "--close")

    reset.new("shop/per_shop", yes=True)
    platform.run("shop", "--close")
    check(platform, FILES)


def test_a_log_from_an_older_backup_is_refused_until_the_right_one_is_back(
    again: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL from before the last batch, tables and checkpoints from after it: no run and no new incarnation begins,
    since either would write again; with the right backup the run goes on as if nothing had been."""
    platform = again.platform
    older = copied(again.server, platform.environment["ONLYONCE_DATABASE_URL"].rsplit("/", 1)[1])
    platform.put("shop", "sales-0002.jsonl", FILES[2])
    platform.run("shop")
    right = platform.environment["ONLYONCE_DATABASE_URL"].rsplit("/", 1)[1]
    before = DeltaTable(str(settings.data_dir("shop") / "events")).version()

    again.use(older, monkeypatch)
    with pytest.raises(Refused, match="from one moment") as refusal:
        platform.run("shop", "--close")
    with pytest.raises(Refused, match="from one moment"):
        reset.new("shop/receive", yes=True)

    assert "reset" not in refusal.value.hint
    assert DeltaTable(str(settings.data_dir("shop") / "events")).version() == before
    again.use(right, monkeypatch)
    platform.run("shop", "--close")
    check(platform, FILES)
