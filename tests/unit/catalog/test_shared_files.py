"""What the workers of a machine share: mapped by all, trusted only whole and from a folder of their own, bounded, and
never needed."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest
from structlog.testing import capture_logs

from onlyonce.catalog import worker_cache
from onlyonce.catalog.worker_cache import LEAST, SharedFiles
from tests.support.other_process import done_apart

NAME = "filter-0"
HEADER = 64


def piece(number: int, size: int = LEAST) -> bytes:
    """Bytes of their own, as many as are worth a file."""
    return random.Random(number).randbytes(size)


PIECE = piece(0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the pieces lie; not made yet."""
    return tmp_path / "shared"


def mapped_file(folder: Path) -> tuple[bytes | None, set[int]]:
    """The piece, and the inodes of the folder's files that this process has in its memory."""
    found = SharedFiles(folder).find(NAME)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]
    return None if found is None else bytes(found), {int(fields[4]) for fields in maps}


def test_what_one_process_has_kept_others_map_from_the_same_file(folder: Path) -> None:
    """So memory has it once. The content is as it was given, in parts, and read-only."""
    kept = SharedFiles(folder).keep(NAME, [PIECE[:100], memoryview(PIECE)[100:]])

    assert kept is not None
    assert kept.readonly
    assert bytes(kept) == PIECE
    assert done_apart(mapped_file, folder) == (PIECE, {(folder / NAME).stat().st_ino})
    assert mapped_file(folder)[1] == {(folder / NAME).stat().st_ino}


def test_mappings_keep_no_file_open(folder: Path) -> None:
    """A process may have a thousand open, and map more than that."""
    shared = SharedFiles(folder)
    before = len(list(Path("/proc/self/fd").iterdir()))
    mapped = [shared.keep(f"filter-{number}", [piece(number)]) for number in range(30)]

    assert [found and bytes(found) for found in mapped] == [piece(number) for number in range(30)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_small_piece_gets_no_file(folder: Path) -> None:
    """It stays with who has it."""
    assert SharedFiles(folder).keep(NAME, [b"small"]) is None
    assert not folder.exists()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "header only": lambda whole: whole[:HEADER],
    "cut in its header": lambda whole: whole[:20],
    "cut": lambda whole: whole[:-4096],
    "longer": lambda whole: whole + b"\0",
    "its end was never written": lambda whole: whole[:-4096] + bytes(4096),
    "nothing was ever written": lambda whole: bytes(len(whole)),
    "a bit flipped": lambda whole: whole[:500] + bytes([whole[500] ^ 4]) + whole[501:],
    "another version": lambda whole: whole[:4] + b"\x02" + whole[5:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_whose_content_does_not_fit_is_not_trusted_and_written_again(folder: Path, damage: str) -> None:
    """However it came to that."""
    shared = SharedFiles(folder)
    shared.keep(NAME, [PIECE])
    whole = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(DAMAGE[damage](whole))

    assert shared.find(NAME) is None
    assert bytes(shared.keep(NAME, [PIECE]) or b"") == PIECE
    assert (folder / NAME).read_bytes() == whole


def test_a_file_of_another_piece_or_a_link_is_not_trusted(folder: Path) -> None:
    """Whole as it is: the name is part of what is compared."""
    shared = SharedFiles(folder)
    shared.keep(NAME, [PIECE])
    shutil.copy(folder / NAME, folder / "filter-1")
    (folder / "filter-2").symlink_to(folder / NAME)

    assert [shared.find(name) for name in ("filter-1", "filter-2", "filter-3")] == [None] * 3


def killed_before_the_rename(folder: Path) -> None:
    """At this instant."""
    os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    SharedFiles(folder).keep(NAME, [PIECE])


def test_a_worker_killed_while_it_writes_leaves_no_piece_and_its_file_goes_in_turn(folder: Path) -> None:
    """It has a name for which nobody asks."""
    with pytest.raises(CalledProcessError, match="SIGKILL"):
        done_apart(killed_before_the_rename, folder)
    [left] = folder.iterdir()
    os.utime(left, (0, 0))

    shared = SharedFiles(folder, most=3 * LEAST)
    assert shared.find(NAME) is None
    for number in range(4):
        shared.keep(f"filter-{number}", [piece(number)])
    assert not left.exists()


@pytest.mark.parametrize("whose", ["group's too", "everybody's", "another user's", "a link to one"])
def test_a_folder_that_another_user_can_enter_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Neither read nor written; it is told once."""
    SharedFiles(folder).keep(NAME, [PIECE])
    if whose == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    elif whose == "a link to one":
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to(folder.with_name("elsewhere"))
    else:
        folder.chmod(0o770 if whose == "group's too" else 0o701)
    shared = SharedFiles(folder)

    with capture_logs() as told:
        assert [shared.find(NAME), shared.keep("filter-1", [piece(1)]), shared.find(NAME)] == [None] * 3
    assert len(told) == 1
    assert [file.name for file in folder.iterdir()] == [NAME]


def test_the_folder_is_bounded_and_what_was_not_used_for_the_longest_time_goes_first(folder: Path) -> None:
    """Twenty pieces where there is room for eight. One that is in use stays, and one that went stays readable."""
    most = 8 * (LEAST + HEADER)
    shared, first = SharedFiles(folder, most), SharedFiles(folder, most).keep("first", [PIECE])
    os.utime(folder / "first", (0, 0))
    for number in range(20):
        if number:
            os.utime(folder / "in-use", (number, number))  # older than all but those of before
            SharedFiles(folder).used("in-use")
        else:
            shared.keep("in-use", [piece(99)])
        shared.keep(f"filter-{number}", [piece(number)])
        assert sum(file.stat().st_size for file in folder.iterdir()) <= most
        os.utime(folder / f"filter-{number}", (100 + number, 100 + number))

    there = {file.name for file in folder.iterdir()}
    assert "in-use" in there
    assert {name for name in there if name != "in-use"} == {f"filter-{number}" for number in range(21 - len(there), 20)}
    assert first is not None
    assert bytes(first) == PIECE


def test_a_piece_larger_than_the_distance_between_two_checks_is_shared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for one that is larger than the folder may be, nothing else is removed."""
    monkeypatch.setattr(worker_cache, "LOOK_EACH", 2 * LEAST)
    shared = SharedFiles(folder, most=16 * LEAST)
    assert shared.keep("small", [PIECE]) is not None

    assert shared.keep("large", [piece(1, 5 * LEAST)]) is not None
    assert shared.keep("too large", [piece(2, 17 * LEAST)]) is None
    assert {file.name for file in folder.iterdir()} == {"small", "large"}


def beyond_its_limit(folder: Path) -> tuple[list[Any], int, list[Path]]:
    """What a process has that may write no more than half of a piece, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LEAST // 2, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    shared = SharedFiles(folder)
    with capture_logs() as told:
        tried = [shared.keep(f"filter-{number}", [piece(number)]) for number in range(2)]
    return tried, len(told), list(folder.iterdir())


def test_on_a_full_disk_nothing_is_kept_and_nothing_left_and_it_is_told_once(folder: Path) -> None:
    """Who has the piece goes on with it."""
    assert done_apart(beyond_its_limit, folder) == ([None, None], 1, [])


def test_where_no_folder_can_be_made_nothing_is_kept_and_it_is_told_once(tmp_path: Path) -> None:
    """As on a disk that is read-only."""
    (tmp_path / "file").touch()
    for parent in ("file", "not there"):
        shared = SharedFiles(tmp_path / parent / "shared")
        with capture_logs() as told:
            assert [shared.keep(NAME, [PIECE]), shared.find(NAME)] == [None] * 2
        assert len(told) == 1


def test_no_more_than_half_of_what_the_disk_has_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has room for five pieces, with those that are there, there are two at most."""

    class Disk:
        f_frsize = 1

        @property
        def f_bavail(self) -> int:
            return 5 * (LEAST + HEADER) - sum(file.stat().st_size for file in folder.iterdir())

    monkeypatch.setattr(os, "fstatvfs", lambda _: Disk())
    shared = SharedFiles(folder)
    kept = [shared.keep(f"filter-{number}", [piece(number)]) for number in range(9)]

    assert None not in kept
    assert 1 <= len(list(folder.iterdir())) <= 2


def rounds(folder: Path, seed: int) -> list[str]:
    """Look for pieces and keep those that are not there, over and over; gives the names under which another's content
    was found."""
    shared, chance, wrong = SharedFiles(folder, most=6 * (LEAST + HEADER)), random.Random(seed), []
    pieces = [piece(number) for number in range(8)]
    for _ in range(300):
        number = chance.randrange(8)
        found = shared.find(f"filter-{number}") or shared.keep(f"filter-{number}", [pieces[number]])
        if found is not None and found != pieces[number]:
            wrong.append(f"filter-{number}")
    return wrong


def test_processes_that_keep_the_same_pieces_at_once_are_all_right(folder: Path) -> None:
    """While each removes what the others have kept."""
    with ThreadPoolExecutor(2) as both:
        assert list(both.map(done_apart, [rounds] * 2, [folder] * 2, range(2))) == [[], []]
