"""Input files are archived when every batch that read them is committed, and never before; at any kill, beside any
run."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.batch import Batch
from onlyonce.database.statements import make_home
from onlyonce.operate import erase_inputs, gc
from onlyonce.tables import stores
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.support.other_process import script_apart
from tests.support.platform import ROOT

SCHEMA = pa.schema(
    [("batch_no", pa.int64()), ("path", pa.string()), ("size", pa.int64()), ("modified_ns", pa.int64()), ("refusal", pa.string())]
)  # fmt: skip


class Shop:
    """The file source of `shop` without Spark: the inbox, the manifest of each instance, and its batches."""

    def __init__(self, log: Log, home: Path) -> None:
        self.log, self.home = log, home
        self.inbox = home / "inbox" / "shop"
        self.inbox.mkdir(parents=True)
        self.runs: dict[str, Receive] = {}

    def put(self, *names: str) -> None:
        """Files of a producer."""
        for name in names:
            (self.inbox / name).parent.mkdir(exist_ok=True)
            (self.inbox / name).write_text(f"the content of {name}\n")

    def run(self, instance: str = "shop") -> Receive:
        """The receive query of an instance."""
        if instance not in self.runs:
            self.runs[instance] = Receive(self.log, instance, partitions=1)
        return self.runs[instance]

    def register(self, instance: str = "shop", **changed: Any) -> None:
        """List the inbox, one file a batch, as a run's first step does."""
        self.run(instance)
        there = DeltaTable(str(table(instance))).to_pyarrow_table().to_pylist() if table(instance).exists() else []
        known = [entry["path"] for entry in there]
        new = [path for path in sorted(self.inbox.rglob("*")) if path.is_file() and str(path) not in known]
        rows = [
            {
                "batch_no": len(known) + n, "path": str(path), "size": path.stat().st_size,
                "modified_ns": path.stat().st_mtime_ns, "refusal": None,
            } | changed
            for n, path in enumerate(new)
        ]  # fmt: skip
        table(instance).mkdir(parents=True, exist_ok=True)
        write_deltalake(str(table(instance)), pa.Table.from_pylist(rows, SCHEMA), mode="append")

    def begin(self, number: int, instance: str = "shop", **facts: str) -> Batch:
        """The batch that reads one cut of the manifest."""
        stream = self.run(instance)
        batch = stream.begin(100)
        self.log.rows(
            "UPDATE onlyonce_private.batches SET source_to = jsonb_build_object('batch_no', %s), facts = %s::jsonb "
            "WHERE incarnation = %s AND batch_id = %s",
            number, json.dumps(facts), batch.plan.incarnation, batch.plan.batch_id,
        )  # fmt: skip
        return batch

    def end(self, batch: Batch, instance: str = "shop") -> None:
        """It is committed."""
        stream = self.run(instance)
        stream.land(batch, stream.units(batch, []))
        stream.end(batch, 0)

    def commit(self, *numbers: int, instance: str = "shop") -> None:
        """Whole batches."""
        for number in numbers:
            self.end(self.begin(number, instance), instance)

    def close(self, instance: str) -> None:
        """A bounded run has finished."""
        Incarnations(self.log.database).close_instance(instance)

    @property
    def places(self) -> dict[str, str]:
        """Where each file is, by name."""
        found = {path.name: "inbox" for path in self.inbox.iterdir()}
        twice = {path.name: "archive" for path in self.home.glob("archive/*/*")}
        assert not found.keys() & twice.keys(), "no file has two names"
        return dict(sorted((found | twice).items()))


def table(instance: str) -> Path:
    """The manifest of an instance."""
    return settings.data_dir(instance) / "files"


@pytest.fixture
def shop(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    """An inbox with three files, registered by the stream; archiving is on."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    monkeypatch.setenv("ONLYONCE_ARCHIVE", str(tmp_path / "archive"))
    made = Shop(log, tmp_path)
    made.put("a", "b", "c")
    made.register()
    return made


STAY = {"a": "inbox", "b": "inbox", "c": "inbox"}


def test_a_file_goes_when_its_batch_is_committed(shop: Shop) -> None:
    """Begun is not committed. Its content goes with it, and the report counts it."""
    shop.commit(0)
    begun = shop.begin(1)
    report = gc.main([])

    assert shop.places == {"a": "archive", "b": "inbox", "c": "inbox"}
    assert (report.facts["files archived"], report.warnings) == (1, [])
    assert (shop.home / "archive" / "shop" / "a").read_text() == "the content of a\n"
    shop.end(begun)
    assert gc.main([]).facts["files archived"] == 1
    assert shop.places == {"a": "archive", "b": "archive", "c": "inbox"}
    assert gc.main([]).facts["files archived"] == 0


def test_files_below_folders_keep_their_way_in_the_archive(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one name are two files. Without `recursive` they are no input, and stay."""
    shop.put("dt=1/a", "dt=2/a")
    shop.register()
    shop.commit(0, 1, 2, 3, 4)
    gc.main([])
    assert sorted(path.name for path in shop.inbox.iterdir()) == ["dt=1", "dt=2"]

    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/deep_shop.py")
    assert gc.main([]).facts["files archived"] == 2
    for name in ("dt=1/a", "dt=2/a"):
        assert (shop.home / "archive" / "shop" / name).read_text() == f"the content of {name}\n"
        assert not (shop.inbox / name).exists()


def test_files_that_grow_stay(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever appends to a file would go on appending in the archive, where nobody reads it."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/grown_shop.py")
    shop.commit(0, 1, 2)

    assert gc.main([]).facts["files archived"] == 0
    assert shop.places == STAY


def test_it_is_off_unless_a_folder_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the report says so."""
    monkeypatch.delenv("ONLYONCE_ARCHIVE")
    shop.commit(0, 1, 2)

    assert gc.main([]).facts["archive"] == "off"
    assert shop.places == STAY


def test_a_bounded_run_that_is_at_work_keeps_all_until_it_has_finished(shop: Shop) -> None:
    """Also before it has listed the inbox: it must find what was there when it was asked for."""
    shop.commit(0, 1, 2)
    shop.run("shop@1")
    gc.main([])
    assert shop.places == STAY
    shop.register("shop@1")
    shop.commit(0, 1, 2, instance="shop@1")
    gc.main([])
    assert shop.places == STAY
    shop.close("shop@1")
    gc.main([])
    assert set(shop.places.values()) == {"archive"}


def test_a_file_that_was_not_read_stays(shop: Shop) -> None:
    """Refused when it was listed, unreadable when its batch began, replaced under its name, or not listed yet."""
    shop.end(shop.begin(0, **{str(shop.inbox / "a"): "it vanished for a while"}))
    shop.commit(1, 2)
    (shop.inbox / "b").write_text("something else\n")
    shop.put("d")
    shop.register(refusal="can't be read")
    shop.commit(3)
    shop.put("e")
    gc.main([])

    assert shop.places == {"a": "inbox", "b": "inbox", "c": "archive", "d": "inbox", "e": "inbox"}


def test_a_file_in_the_archive_is_never_overwritten(shop: Shop) -> None:
    """Another one of the same name stays in the inbox, with a warning; the others go."""
    (shop.home / "archive" / "shop").mkdir(parents=True)
    other = shop.home / "archive" / "shop" / "b"
    other.write_text("an older delivery\n")
    shop.commit(0, 1, 2)
    report = gc.main([])

    assert other.read_text() == "an older delivery\n"
    assert sorted(path.name for path in shop.inbox.iterdir()) == ["b"]
    assert ["is another file" in warning for warning in report.warnings] == [True]
    assert report.facts["files archived"] == 2


def test_an_archive_on_another_file_system_gets_a_copy(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or not at all, with its time."""
    other_file_system(monkeypatch, shop.inbox)
    times = {path.name: path.stat().st_mtime_ns for path in shop.inbox.iterdir()}
    shop.commit(0, 1, 2)
    gc.main([])

    there = list((shop.home / "archive" / "shop").iterdir())
    assert {path.name: path.stat().st_mtime_ns for path in there} == times
    assert shop.places == dict.fromkeys("abc", "archive")


def test_a_copy_is_on_the_disk_before_the_inbox_loses_the_file(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy, and the folder that has its name: a failure of power leaves one of the two."""
    other_file_system(monkeypatch, shop.inbox)
    done: list[str] = []
    unlink = Path.unlink

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        done.extend(["unlink"] if path == shop.inbox / "a" else [])
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(stores, "sync", lambda path: done.append(path.name))
    monkeypatch.setattr(Path, "unlink", unlinked)
    shop.commit(0)
    gc.main([])

    assert done == [".a.part", "shop", "unlink"]


def test_name_taken_while_a_file_is_copied_is_kept(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays in the inbox, and no copy of it in the archive."""
    other_file_system(monkeypatch, shop.inbox)
    copy = shutil.copy2

    def copied(source: Path, part: Path) -> None:
        copy(source, part)
        (part.parent / source.name).write_text("another program's\n")

    monkeypatch.setattr(shutil, "copy2", copied)
    shop.commit(0)
    report = gc.main([])

    assert [path.read_text() for path in (shop.home / "archive" / "shop").iterdir()] == ["another program's\n"]
    assert (shop.inbox / "a").read_text() == "the content of a\n"
    assert ["is another file" in warning for warning in report.warnings] == [True]


def test_file_stays_if_the_archive_has_no_hard_links(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning says why; the next collection tries again."""
    with monkeypatch.context() as patch:
        other_file_system(patch, shop.home)
        shop.commit(0)
        [warning] = gc.main([]).warnings
    assert "Invalid cross-device link" in warning
    assert shop.places == STAY

    gc.main([])
    assert shop.places == STAY | {"a": "archive"}


def other_file_system(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Refuse second names of files below a folder."""
    link = os.link

    def refused(source: Path, target: Path) -> None:
        if source.is_relative_to(folder):
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
        link(source, target)

    monkeypatch.setattr(os, "link", refused)


def test_no_run_registers_itself_between_the_look_and_the_moves(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded run that would start meanwhile waits until the files are gone, and then does not find them."""
    shop.commit(0, 1, 2)
    seen: list[tuple[Any, ...]] = []
    move = gc._move

    def looked(wanted: gc.Move) -> str | None:
        # Another session: whether an insert would have to wait, asked without waiting.
        try:
            shop.log.rows("LOCK TABLE onlyonce_private.pipelines IN ROW EXCLUSIVE MODE NOWAIT")
        except Exception as error:
            seen.append((type(error).__name__,))
        return move(wanted)

    monkeypatch.setattr(gc, "_move", looked)
    gc.main([])

    assert seen == [("LockNotAvailable",)] * 3
    assert set(shop.places.values()) == {"archive"}


@pytest.mark.fault
@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.whole)])
@pytest.mark.parametrize("point", ["archive-before-move", "archive-after-second-name", "archive-after-move"])
def test_killed_between_any_two_moves_it_goes_on(shop: Shop, point: str, nth: int, tmp_path: Path) -> None:
    """Each file has its content in one of the two places, or under both names; the next collection ends it."""
    shop.commit(0, 1, 2)
    counted = tmp_path / "failpoints"
    counted.mkdir()
    kill = f"{point}:{nth}:kill-process"
    code = script_apart(
        "from onlyonce.operate import gc; gc.main([])",
        ONLYONCE_FAILPOINTS=kill,
        ONLYONCE_FAILPOINT_DIR=str(counted),
    )
    assert code == -signal.SIGKILL
    folders = (shop.inbox, shop.home / "archive" / "shop")
    left = {path.name: path.read_text() for folder in folders if folder.exists() for path in folder.iterdir()}
    assert left == {name: f"the content of {name}\n" for name in "abc"}

    gc.main([])
    assert shop.places == dict.fromkeys("abc", "archive")


def declare_other(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: str) -> None:
    """Declare the pipeline `other` over the same inbox, next to those of a file in tests/support."""
    text = (ROOT / "tests/support/shop.py").read_text().replace('name="shop",\n', 'name="other",\n', 1)
    text = text.replace("source=Files(", f'source=Files(inbox="{shop.inbox}", ').replace('"results.', '"elsewhere.')
    (tmp_path / "other.py").write_text(text)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{ROOT}/tests/support/{beside}{os.pathsep}{tmp_path}/other.py")


def test_a_pipeline_that_shares_the_inbox_must_have_read_it_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also one that is declared and has never run. The first of them whose turn it is moves the file."""
    declare_other(shop, monkeypatch, tmp_path, "shop.py")
    shop.commit(0, 1, 2)
    gc.main([])
    assert shop.places == STAY
    shop.register("other")
    shop.commit(0, 2, instance="other")
    gc.main([])

    assert shop.places == {"a": "archive", "b": "inbox", "c": "archive"}


def test_files_below_folders_go_though_another_pipeline_skips_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It never reads them, so they would stay for good. It must have read the others."""
    declare_other(shop, monkeypatch, tmp_path, "deep_shop.py")
    shop.register("other")
    shop.put("dt=1/d")
    shop.register()
    shop.commit(0, 1, 2, 3)
    shop.commit(0, instance="other")

    gc.main([])

    there = [path for path in shop.inbox.rglob("*") if path.is_file()]
    assert sorted(path.name for path in there) == ["b", "c"]
    assert (shop.home / "archive" / "shop" / "dt=1" / "d").read_text() == "the content of dt=1/d\n"


@pytest.mark.parametrize("spelled", ["LINK", "WHOLE/../shop"])
def test_files_stay_if_another_pipeline_reads_them_by_other_paths(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spelled: str
) -> None:
    """Its manifest has other names, so nothing says what it has read."""
    (tmp_path / "link").symlink_to(shop.inbox)
    inbox = spelled.replace("LINK", str(tmp_path / "link")).replace("WHOLE", str(shop.inbox))
    text = (ROOT / "tests/support/shop.py").read_text().replace('name="shop",\n', 'name="other",\n', 1)
    text = text.replace("source=Files(", f'source=Files(inbox="{inbox}", ').replace('"results.', '"elsewhere.')
    (tmp_path / "other.py").write_text(text)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{ROOT}/tests/support/shop.py{os.pathsep}{tmp_path}/other.py")
    shop.commit(0, 1, 2)

    report = gc.main([])

    assert shop.places == STAY
    assert any(f"the files of {shop.inbox} stay: other reads them too" in warning for warning in report.warnings)
    assert "other" in erase_inputs.inputs_sharing(declarations.load()["shop"], None)
