"""Sharded files: which attempt's count, how they get their final names, and which temporaries may go."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from onlyonce import failpoints
from onlyonce.api.sinks import FileSink
from onlyonce.commitlog.files import Files
from onlyonce.core import ownership
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, Refused, Retryable, Superseded
from onlyonce.core.ownership import Place
from onlyonce.core.shards import Winner
from onlyonce.database.connect import run
from onlyonce.database.statements import make_home
from onlyonce.sinks.files import file_stores, file_target, finalize, sink_files, sweep
from tests.contract.conftest import Log
from tests.contract.shards import Shards, name_of, sales, wanted

POINTS = ("before-link", "after-link", "after-rename", "before-mark", "after-mark")
ALL = sales(5) + sales(3, minute=1)


@pytest.fixture
def shop(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shards:
    """An output with a file sink, on a platform of this test's own."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    return Shards(log, log.start("shop", "sales"))


def test_each_window_has_all_its_shards_and_each_row_is_in_one(shop: Shards) -> None:
    """Two windows, four shards: eight files, some of them empty, by the names that were declared."""
    shop.batch(0, ALL)
    assert shop.names() == []

    report = finalize.main([])

    assert report.facts == {"files": 8}
    assert shop.names() == [name_of(minute, shard) for minute in (0, 1) for shard in range(4)]
    assert shop.lines() == wanted(*ALL)
    assert shop.pending() == []
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("final",): 8})


def test_the_log_has_what_is_in_the_files(shop: Shards) -> None:
    """Rows, bytes and checksum of each."""
    import hashlib

    shop.batch(0, ALL)
    finalize.main([])

    for name, rows, size, checksum in shop.log.rows("SELECT name, rows, bytes, checksum FROM onlyonce.output_files"):
        content = (shop.folder / name).read_bytes()
        assert (len(content.splitlines()), len(content), hashlib.sha256(content).hexdigest()) == (rows, size, checksum)


def test_empty_shards_are_left_out_when_asked_for(shop: Shards) -> None:
    """`skip_empty`: the rows are the same, no file is empty."""
    shop.sink = FileSink(shards=4, skip_empty=True)
    shop.begin()
    for partition in range(2):
        shop.task(0, partition, ALL, windows=())
    shop.end()
    finalize.main([])

    assert 0 < len(shop.names()) < 8
    assert all((shop.folder / name).stat().st_size for name in shop.names())
    assert shop.lines() == wanted(*ALL)


def test_a_batch_that_is_not_committed_gets_no_final_names(shop: Shards) -> None:
    """One unit of two has committed; finalize leaves it alone."""
    shop.begin()
    shop.task(0, 0, ALL)

    assert finalize.main([]).facts == {"files": 0}
    assert shop.names() == []
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("begun",): 4})


def test_a_replay_keeps_the_winners_and_leaves_nothing_behind(shop: Shards) -> None:
    """The second attempt finds its unit, writes nothing, and agrees."""
    shop.begin()
    first = [shop.task(0, partition, ALL) for partition in range(2)]
    there, pending = shop.log.multiset("SELECT temporary FROM onlyonce.output_files"), shop.pending()

    again = [shop.task(0, partition, ALL, attempt=1) for partition in range(2)]

    assert (first, again) == ([4, 4], [0, 0])
    assert shop.log.multiset("SELECT temporary FROM onlyonce.output_files") == there
    assert shop.pending() == pending


def test_of_twins_one_counts_and_the_other_takes_its_files_away(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin commits after this one has looked and written, before it claims."""
    shop.begin()
    record = sink_files._record

    def twin_first(*arguments: object) -> bool:
        monkeypatch.setattr(sink_files, "_record", record)
        assert shop.task(0, 0, ALL, attempt=1) == 4
        return record(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sink_files, "_record", twin_first)

    assert shop.task(0, 0, ALL) == 0
    assert Counter(shop.pending()) == Counter(
        t for (t,) in shop.log.rows("SELECT temporary FROM onlyonce.output_files")
    )


def test_a_replay_that_means_other_rows_stops(shop: Shards) -> None:
    """It is told before anything of it is written; at least once the first attempt's rows stay in silence."""
    shop.begin()
    shop.task(0, 0, ALL)
    before = shop.pending()
    with pytest.raises(InvariantBroken, match="its replay gives"):
        shop.task(0, 0, sales(9))
    shop.task(0, 0, sales(9), compared=False)

    assert shop.pending() == before


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer_is_settled_by_the_log(shop: Shards, monkeypatch: pytest.MonkeyPatch, arrived: bool) -> None:
    """COMMIT arrived or not: one attempt's files count in the end, and a file that may count is never removed."""
    shop.begin()
    record = sink_files._record

    def lost(*arguments: object) -> bool:
        if arrived:
            record(*arguments)  # type: ignore[arg-type]
        raise CommitStateUnknown("the answer was lost")

    monkeypatch.setattr(sink_files, "_record", lost)
    if arrived:
        assert shop.task(0, 0, ALL) == 4
    else:
        with pytest.raises(Exception, match="did not arrive"):
            shop.task(0, 0, ALL)
        assert len(shop.pending()) == 4
        monkeypatch.setattr(sink_files, "_record", record)
        assert shop.task(0, 0, ALL, attempt=1) == 4

    winners = {t for (t,) in shop.log.rows("SELECT temporary FROM onlyonce.output_files WHERE unique_id LIKE '%%/0'")}
    assert len(winners) == 4
    assert winners <= set(shop.pending())


def test_an_older_driver_records_nothing(shop: Shards) -> None:
    """Its files stay as orphans until the sweep; none counts."""
    shop.begin()
    shop.log.restart(shop.driver)
    with pytest.raises(Superseded):
        shop.task(0, 0, ALL)

    assert shop.log.rows("SELECT * FROM onlyonce.output_files") == []


def test_a_writer_that_fails_leaves_nothing(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break in a text is refused; what was written of the unit goes with it."""
    shop.begin()
    monkeypatch.setattr("tests.contract.shards.text", lambda row: f"two\n{row['id']}")
    with pytest.raises(Refused, match="line break"):
        shop.task(0, 0, ALL)

    assert shop.pending() == []


def test_a_second_batch_of_a_window_makes_its_next_pane(shop: Shards) -> None:
    """Early panes: a file of a pane is never replaced."""
    shop.batch(0, sales(3))
    shop.batch(1, sales(2, first=3) + sales(1, minute=1))
    finalize.main([])

    assert shop.lines() == wanted(*sales(5), *sales(1, minute=1))
    panes = shop.log.multiset("SELECT window_start, pane, count(*) FROM onlyonce.output_files GROUP BY 1, 2")
    assert sorted((pane, files) for _, pane, files in panes) == [(0, 4), (0, 4), (1, 4)]


def test_finalize_twice_changes_nothing(shop: Shards) -> None:
    """The second finds nothing that waits."""
    shop.batch(0, ALL)
    finalize.main([])
    before = {name: (shop.folder / name).stat().st_mtime_ns for name in shop.names()}

    assert finalize.main([]).facts == {"files": 0}
    assert {name: (shop.folder / name).stat().st_mtime_ns for name in shop.names()} == before


def test_two_finalizers_at_once_make_one_result(shop: Shards, tmp_path: Path) -> None:
    """Two processes over the same files, again and again: both end well, each file has its name once."""
    for number in range(6):
        shop.batch(number, sales(6, minute=number))
        both = [started(tmp_path) for _ in range(2)]
        assert [os.waitpid(child, 0)[1] for child in both] == [0, 0]

    assert shop.lines() == wanted(*[row for number in range(6) for row in sales(6, minute=number)])
    assert len(shop.names()) == 24
    assert shop.pending() == []
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("final",): 24})


def test_a_kill_between_any_two_renames_does_not_show(shop: Shards, tmp_path: Path) -> None:
    """SIGKILL in the middle of a pane, at each step; the same command ends it."""
    for number, point in enumerate(POINTS):
        rows = sales(5, minute=number)
        shop.batch(number, rows)
        nth = 1 if point.endswith("mark") else 3
        assert finalizing(tmp_path, f"finalize-{point}", nth) == signal.SIGKILL, point

        finalize.main([])

        written = [row for minute in range(number + 1) for row in sales(5, minute=minute)]
        assert shop.names() == [name_of(minute, shard) for minute in range(number + 1) for shard in range(4)]
        assert shop.lines() == wanted(*written)
        assert shop.pending() == []
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("final",): 20})


def finalizing(folder: Path, *point: object) -> int:
    """A finalize in a process of its own, struck at a point or not; gives the signal that ended it, 0 for none."""
    child = started(folder, *point)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def started(folder: Path, *point: object) -> int:
    """The same, at work; gives its process id. A fork of this process, which has all modules already."""
    if child := os.fork():
        return child
    try:
        if point:
            name, nth = point
            failpoints._POINTS = {str(name): (int(str(nth)), "kill-process")}
            os.environ["ONLYONCE_FAILPOINT_DIR"] = str(folder)
        finalize.main([])
        os._exit(0)
    finally:
        os._exit(1)


def test_a_taken_name_with_the_same_content_is_success(shop: Shards) -> None:
    """As an attempt leaves it that was killed between link and unlink, or one that a person has copied."""
    shop.batch(0, ALL)
    for name, temporary in shop.log.rows("SELECT name, temporary FROM onlyonce_private.files"):
        shutil.copy(shop.folder / ".pending" / temporary, shop.folder / name)

    assert finalize.main([]).facts == {"files": 8}
    assert shop.lines() == wanted(*ALL)
    assert shop.pending() == []


def test_a_taken_name_with_other_content_is_an_error_and_stays(shop: Shards) -> None:
    """Nothing is overwritten, the rest becomes final, and the error comes again until somebody acts."""
    shop.batch(0, ALL)
    taken = shop.folder / name_of(0, 2)
    taken.write_text("mine")
    for _ in range(2):
        with pytest.raises(InvariantBroken, match="should have"):
            finalize.main([])
    assert taken.read_text() == "mine"
    assert set(shop.names()) >= {name_of(1, shard) for shard in range(4)}

    taken.unlink()
    finalize.main([])
    assert shop.lines() == wanted(*ALL)


def test_folder_that_is_away_keeps_no_other_waiting(shop: Shards) -> None:
    """Its own files wait; the same command gives them their names once it is back."""
    other = replace(shop, place="shop/zz")
    shop.batch(0, ALL)
    other.batch(1, sales(9, minute=7))
    aside = shop.folder.rename(shop.folder.with_name("aside"))
    shop.folder.write_text("no folder")
    with pytest.raises(Retryable, match="shop/sales"):
        finalize.main([])
    assert (other.pending(), len(other.names())) == ([], 4)

    shop.folder.unlink()
    aside.rename(shop.folder)
    finalize.main([])
    assert shop.lines() == wanted(*ALL)


@pytest.mark.parametrize("moment", ["publish", "published"])
@pytest.mark.parametrize("error", [ImportError, ValueError, OSError, Refused])
def test_a_store_that_can_not_be_opened_keeps_no_other_waiting(
    shop: Shards, monkeypatch: pytest.MonkeyPatch, moment: str, error: type[Exception]
) -> None:
    """Its package is not installed, nobody knows it, or it refuses a request: whether at the first step of its files or
    at the last."""
    other = replace(shop, place="shop/zz")
    shop.batch(0, ALL)
    other.batch(1, sales(9, minute=7))
    whole = getattr(file_stores.LocalStore, moment)

    def failing(store: file_stores.LocalStore, winners: list[Winner]) -> None:
        if winners[0].place == shop.place:
            raise error("install ossfs")
        whole(store, winners)

    monkeypatch.setattr(file_stores.LocalStore, moment, failing)
    with pytest.raises(Refused if error is Refused else Retryable, match="shop/sales: install ossfs"):
        finalize.main([])
    assert shop.log.multiset("SELECT place, state FROM onlyonce.output_files") == Counter(
        {("shop/sales", "waiting"): 8, ("shop/zz", "final"): 4}
    )


def test_panes_of_a_place_that_is_away_are_not_read_again(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait: the log is asked for them until the first has failed."""
    for number in range(3):
        shop.batch(number, sales(2, minute=number))
    monkeypatch.setattr(finalize, "AT_ONCE", 1)
    shop.folder.rename(shop.folder.with_name("aside"))
    shop.folder.write_text("no folder")
    asked: list[list[str]] = []
    whole = Files.waiting

    def waiting(files: Files, instances: list[str] | None, panes: int, away: list[str]) -> list[Winner]:
        asked.append(away)
        return whole(files, instances, panes, away)

    monkeypatch.setattr(Files, "waiting", waiting)
    with pytest.raises(Retryable, match="shop/sales"):
        finalize.main([])

    assert asked == [[], [shop.place]]


def test_a_temporary_that_is_missing_is_an_error(shop: Shards) -> None:
    """Neither name is there: rows that the log vouches for are gone, and finalize says so."""
    shop.batch(0, ALL)
    ((temporary,),) = shop.log.rows("SELECT temporary FROM onlyonce.output_files ORDER BY rows DESC LIMIT 1")
    (shop.folder / ".pending" / temporary).unlink()

    with pytest.raises(InvariantBroken, match="does not exist"):
        finalize.main([])
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files WHERE state <> 'final'") == Counter(
        {("waiting",): 4}
    )


def test_a_temporary_that_was_changed_is_an_error(shop: Shards) -> None:
    """It does not get the final name."""
    shop.batch(0, ALL)
    ((name, temporary),) = shop.log.rows(
        "SELECT name, temporary FROM onlyonce_private.files ORDER BY rows DESC LIMIT 1"
    )
    with (shop.folder / ".pending" / temporary).open("a") as file:
        file.write("more\n")

    with pytest.raises(InvariantBroken, match="should have"):
        finalize.main([])
    assert name not in shop.names()


def test_without_second_names_a_rename_gives_the_final_one(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """On file systems that have no hard links."""

    def refused(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "link", refused)
    place = Place(f"files:{shop.place}")
    for note in ("the first platform's", "another platform's"):
        file_target.put_note(place, note)
    shop.batch(0, ALL)
    finalize.main([])

    assert file_target.note(place) == "the first platform's"
    (shop.folder / ownership.FILE).unlink()
    assert shop.lines() == wanted(*ALL)
    assert shop.pending() == []


def test_one_pipeline_is_finalized_alone_and_a_wrong_name_refused(shop: Shards) -> None:
    """By its name, with its bounded runs."""
    shop.batch(0, ALL)
    with pytest.raises(Refused, match="shoop"):
        finalize.main(["shoop"])
    assert finalize.main(["flights"]).facts == {"files": 0}
    assert finalize.main(["shop"]).facts == {"files": 8}


def test_the_sweep_removes_what_nobody_can_want_and_nothing_else(shop: Shards) -> None:
    """Of a dead epoch, of a unit that is committed: yes. Of the live driver's open unit, of a winner, of others: no."""
    shop.begin()
    kill = sink_files._record
    try:
        sink_files._record = _raise  # type: ignore[assignment]
        for partition in (0, 1):
            with pytest.raises(RuntimeError):
                shop.task(0, partition, ALL)
    finally:
        sink_files._record = kill
    orphans = set(shop.pending())
    (shop.folder / ".pending" / "notes.txt").write_text("of somebody else")
    other = next(iter(orphans)).replace(f"{shop.driver.number}-", "999-", 1)
    (shop.folder / ".pending" / other).write_text("of another log")

    assert swept(shop, hours=0) == set()  # the driver is at work: its tasks may still commit
    shop.task(0, 0, ALL, attempt=1)
    assert swept(shop, hours=24) == set()
    first = {name for name in orphans if "-sales-0." in name}
    assert swept(shop, hours=0) == first  # their unit is committed; those of the open one stay
    shop.log.restart(shop.driver)
    assert swept(shop, hours=0) == orphans - first  # fenced by a newer driver

    there = set(shop.pending()) - {"notes.txt", other}
    assert there == {t for (t,) in shop.log.rows("SELECT temporary FROM onlyonce.output_files")}
    assert {"notes.txt", other} <= set(shop.pending())


@pytest.mark.parametrize("spelled", ["shop//sales", "shop/./sales", "WHOLE"])
def test_a_sweep_of_a_place_that_is_spelled_in_another_way_keeps_what_counts(
    shop: Shards, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    """The log has the files under the spelling of then. The folder is looked at once."""
    shop.batch(0, ALL)
    shop.log.restart(shop.driver)
    other = str(shop.folder) if spelled == "WHOLE" else spelled
    monkeypatch.setattr(sweep, "_places", lambda *_: {shop.place, other})
    orphan = shop.pending()[0].replace(shop.pending()[0].split(".")[2].split("-")[0], "0" * 32)
    (shop.folder / ".pending" / orphan).write_text("half")

    assert swept(shop, hours=0) == {orphan}
    monkeypatch.setattr(sweep, "_places", lambda *_: {other, *Files(shop.log.database).places()})
    assert swept(shop, hours=0) == set()

    finalize.main([])
    assert shop.lines() == wanted(*ALL)


def test_a_sweep_that_is_only_asked_removes_nothing(shop: Shards) -> None:
    """--dry-run lists."""
    shop.batch(0, ALL)
    winner = shop.pending()[0]
    orphan = winner.replace(winner.split(".")[2].split("-")[0], "0" * 32)
    (shop.folder / ".pending" / orphan).write_text("half")

    report = sweep.sweep(shop.log.database, {}, 0, dry_run=True)

    assert [row["temporary"] for row in report.tables["orphans"]] == [orphan]
    assert orphan in shop.pending()


def _raise(*_: object) -> bool:
    raise RuntimeError("killed before its transaction")


def swept(shop: Shards, hours: float) -> set[str]:
    """What a sweep removes; the place is told by a winner or not at all, so it is given."""
    from unittest import mock

    with mock.patch.object(sweep, "_places", return_value={shop.place}):
        report = sweep.sweep(shop.log.database, {}, hours)
    return {row["temporary"] for row in report.tables["orphans"] if row["outcome"] == "removed"}


def test_a_removal_that_fails_hides_no_earlier_one(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """The orphan that is gone is reported, and why the place was left."""
    shop.batch(0, ALL)
    winner = shop.pending()[0]
    for attempt in ("0" * 32, "1" * 32):
        (shop.folder / ".pending" / winner.replace(winner.split(".")[2].split("-")[0], attempt)).write_text("half")
    remove, removed = file_stores.LocalStore.remove, list[str]()

    def once(store: file_stores.LocalStore, temporary: str) -> None:
        if removed:
            raise PermissionError(13, "not allowed")
        removed.append(temporary)
        remove(store, temporary)

    monkeypatch.setattr(file_stores.LocalStore, "remove", once)
    report = sweep.sweep(shop.log.database, {}, 0)

    assert [row["temporary"] for row in report.tables["orphans"]] == removed
    assert (report.facts["removed"], len(removed)) == (1, 1)
    assert "not allowed" in report.warnings[0]


def test_no_second_winner_can_be_recorded(shop: Shards) -> None:
    """The table refuses it, whoever asks."""
    shop.batch(0, ALL)
    for change in ("pane = 7", "name = 'x'"):
        with pytest.raises(Exception, match=r"files_one_of_a_name|files_one_winner"):
            run(shop.log.database, lambda conn, c=change: conn.exec_driver_sql(  # type: ignore[misc]
                f"UPDATE onlyonce_private.files SET {c}, shard = 0 WHERE window_start = (SELECT min(window_start) "
                "FROM onlyonce_private.files)"))  # fmt: skip
