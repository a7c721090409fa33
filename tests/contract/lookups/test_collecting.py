"""A copy of a PostgreSQL table goes when nobody can ask for it, and no sooner."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.database.statements import make_home
from onlyonce.lookups import copies
from onlyonce.lookups.copies import Named
from onlyonce.testing.scratch import Log
from tests.contract.receive import Receive

HOUR = 3600


@pytest.fixture
def place(log: Log, tmp_path: Path) -> Iterator[Path]:
    """A folder of copies, in a home of its own."""
    with settings.within({"ONLYONCE_HOME": str(tmp_path), "ONLYONCE_DATABASE_URL": log.url}):
        make_home()
        found = copies.folder_of_table("postgres::shop.cities")
        assert isinstance(found, Path)
        yield found


def aged(place: Path, hours: float, *kinds: str) -> None:
    """Files of these kinds are older by so many hours."""
    for file in place.iterdir():
        if not kinds or file.suffix.removeprefix(".") in kinds:
            at = file.stat().st_mtime - hours * HOUR
            os.utime(file, (at, at))


def gone(log: Log, place: Path) -> bool:
    """Whether the first of two versions goes by two collections with more than an hour between them."""
    copies.collect_copies(log.database)
    aged(place, 2, "going")
    return copies.collect_copies(log.database) == 1


def two(place: Path) -> Named:
    """Two versions that no driver has found for three days; gives the first."""
    first = copies.keep_copy(place, "a1", b"first")
    copies.keep_copy(place, "b2", b"second")
    aged(place, 72)
    return first


def test_what_nobody_can_ask_for_goes_by_the_second_collection(log: Log, place: Path) -> None:
    """The last one stays, so numbers go on; nothing of the other is left."""
    first = two(place)
    assert copies.collect_copies(log.database) == 0
    assert copies.look_at_copy(place, first)
    assert copies.collect_copies(log.database) == 0, "it was marked only now"
    aged(place, 2, "going")
    assert copies.collect_copies(log.database) == 1
    assert sorted(file.name for file in place.iterdir()) == ["2-b2.parquet", "2-b2.taken"]
    assert copies.keep_copy(place, "a1", b"first") == (3, "a1")


def test_what_a_driver_has_found_stays_for_two_days(log: Log, place: Path) -> None:
    """A query may have been started with it, and has no batch yet."""
    two(place)
    aged(place, -30, "taken")
    assert not gone(log, place)
    aged(place, 30, "taken")
    assert gone(log, place)


def test_a_version_that_is_going_is_not_used_anew(log: Log, place: Path) -> None:
    """A driver takes a copy between the two collections: it stores another version, or has marked the one that it
    uses."""
    first = two(place)
    copies.collect_copies(log.database)
    again = copies.keep_copy(place, "a1", b"first")
    assert again == (3, "a1")
    aged(place, 2, "going")
    copies.collect_copies(log.database)
    assert copies.look_at_copy(place, again)
    assert not copies.look_at_copy(place, first)


def test_a_version_that_is_found_in_the_moment_when_it_is_marked_stays(log: Log, place: Path) -> None:
    """The driver has listed before the mark was there, and notes the version after it."""
    first = two(place)
    copies.collect_copies(log.database)
    copies.copy_at(place, first, "taken").touch()  # type: ignore[union-attr]
    aged(place, 2, "going")
    copies.collect_copies(log.database)
    assert copies.look_at_copy(place, first)
    assert not copies.copy_at(place, first, "going").exists()  # type: ignore[union-attr]


@pytest.mark.parametrize("by", ["a batch under way", "the last batch", "a window"])
def test_what_the_log_names_stays(log: Log, place: Path, by: str) -> None:
    """A batch under way and the last of an incarnation may be tried again; a window may be made again with what it saw, until
    its records are gone."""
    first = two(place)
    names(log, first, by)
    assert not gone(log, place)
    log.rows("UPDATE onlyonce_private.batches SET lookups = '{}'")
    log.rows("UPDATE onlyonce_private.pipelines SET events_kept_from = '2031-01-01Z'")
    assert gone(log, place)


def names(log: Log, version: Named, by: str) -> None:
    """The log has a batch, or a window that is written, that saw this version."""
    stream = Receive(log)
    stream.batch(100, [])
    lookups = json.dumps({"cities": {"version": version[0], "table": version[1]}})
    if by != "a window":
        state = ", state = 'begun', committed_at = NULL" if by == "a batch under way" else ""
        log.rows(f"UPDATE onlyonce_private.batches SET lookups = '{lookups}'{state}")
    else:
        log.rows(
            f"""INSERT INTO onlyonce_private.panes (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id,
                declaration_hash, lookups) SELECT instance, 'out', '2030-01-01Z', '2030-01-01 01:00Z', 0, true, 1, 'l', 0, 'h', '{lookups}'
                FROM onlyonce_private.pipelines"""
        )
