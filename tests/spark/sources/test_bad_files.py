"""Every kind of bad file: it becomes one invalid record or is left alone; the files beside it are read, nothing
loops."""

from __future__ import annotations

import bz2
import gzip
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.core.errors import Retryable
from tests.support.bad_input import record
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

STALE = b"crc\0" + (512).to_bytes(4, "big") + b"\0\0\0\0"
"""A checksum file of Hadoop's form that does not fit the file beside it."""

PACKED = gzip.compress(record("packed") * 99)
FLIPPED = PACKED[:-6] + bytes([PACKED[-6] ^ 1]) + PACKED[-5:]

# name → (content, the ids that must come of it)
READ: dict[str, tuple[bytes, list[str]]] = {
    "plain.jsonl": (record("plain") + b"\n", ["plain"]),
    "empty.jsonl": (b"", []),
    "no-newline.jsonl": (record("first") + b"\n" + record("cut"), ["first", "cut"]),
    "windows.jsonl": (record("w1") + b"\r\n" + record("w2") + b"\r\n", ["w1", "w2"]),
    "marked.jsonl": (b"\xef\xbb\xbf" + record("m1") + b"\n" + record("m2") + b"\n", ["m1", "m2"]),
    "with space [1]*{a}.jsonl": (record("pattern") + b"\n", ["pattern"]),
    "line\nfeed.jsonl": (record("feed") + b"\n", ["feed"]),
    "ü🛒%20.jsonl": (record("emoji") + b"\n", ["emoji"]),
    "'\"quotes\"\\'.jsonl": (record("quotes") + b"\n", ["quotes"]),
    "colon:2026-01-01T00:00.jsonl": (record("colon") + b"\n", ["colon"]),
    "no ending": (record("ending") + b"\n", ["ending"]),
    "x" * 255: (record("long") + b"\n", ["long"]),
    "stale.jsonl": (record("stale") + b"\n", ["stale"]),
    "packed.jsonl.gz": (gzip.compress(record("p1") + b"\n") + gzip.compress(record("p2")), ["p1", "p2"]),
    "packed.jsonl.bz2": (bz2.compress(record("b1") + b"\n" + record("b2")), ["b1", "b2"]),
    "packed.jsonl.zst": (pa.compress(record("z1") + b"\n" + record("z2"), codec="zstd", asbytes=True), ["z1", "z2"]),
}
# name → (content, the reason)
REFUSED: dict[str, tuple[bytes, str]] = {
    "packed.jsonl.lz4": (record("packed") + b"\n", "compressed"),
    "no-bzip2.jsonl.bz2": (record("packed") + b"\n", "cut short or damaged"),
    "no-gzip.jsonl.gz": (record("packed") + b"\n", "cut short or damaged"),
    "cut.jsonl.gz": (gzip.compress(record("packed") * 99)[:-9], "cut short or damaged"),
    "flipped.jsonl.gz": (FLIPPED, "cut short or damaged"),
    os.fsdecode(b"bad\xff.jsonl"): (record("name") + b"\n", "name is not UTF-8"),
    "parquet.jsonl": (
        b"PAR1\x15\x04\n\n" + record("parquet") + b"\nPAR1",
        "declare a pipeline or input with Files(format=",
    ),
    "utf16.jsonl": (record("u1").decode().encode("utf-16") + b"\n\0", "iconv -f UTF-16 -t UTF-8 OLD > NEW"),
    "packed-without-ending.jsonl": (PACKED, "put it in under a new name that ends in .gz"),
    "grows.jsonl": (record("grows") + b"\n", "changed after it was listed"),
    "shrinks.jsonl": (record("shrinks") + b"\n", "changed after it was listed"),
    "vanishes.jsonl": (record("vanishes") + b"\n", "vanished before it was read"),
    "becomes a folder.jsonl": (record("folder") + b"\n", "changed after it was listed"),
}
NO_FILES = {
    "pipe": "a pipe",
    "nowhere": "a symbolic link",
    "link": "a symbolic link",
    "becomes a link.jsonl": "changed after it was listed",
}
LEFT_ALONE = [".hidden.jsonl", "_temporary.jsonl", "folder", ".stale.jsonl.crc"]


def fill(folder: Path) -> None:
    """An inbox with a file of every kind."""
    for name, (content, _) in [*READ.items(), *REFUSED.items()]:
        (folder / name).write_bytes(content)
    (folder / ".hidden.jsonl").write_text("{")
    (folder / "_temporary.jsonl").write_text("{")
    (folder / ".stale.jsonl.crc").write_bytes(STALE)
    (folder / "folder").mkdir()
    (folder / "nowhere").symlink_to(folder / "missing")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(folder / "plain.jsonl")
    (folder / "becomes a link.jsonl").write_bytes(record("linked") + b"\n")


def disturb(folder: Path) -> None:
    """What happens to files between listing and reading."""
    with (folder / "grows.jsonl").open("ab") as file:
        file.write(record("more") + b"\n")
    (folder / "shrinks.jsonl").write_bytes(b"")
    (folder / "vanishes.jsonl").unlink()
    (folder / "becomes a folder.jsonl").unlink()
    (folder / "becomes a folder.jsonl").mkdir()
    (folder / "becomes a link.jsonl").unlink()
    (folder / "becomes a link.jsonl").symlink_to(folder / "plain.jsonl")


def at(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], Any]) -> None:
    """Do something once, at a fail-point of receive."""
    done: list[str] = []

    def passing(name: str) -> None:
        if name == point and not done:
            done.append(name)
            act()

    monkeypatch.setattr("onlyonce.receive.loop.passing", passing)


def told(platform: Platform) -> Counter[Any]:
    """(name of the file, whether its reason is the stated one) of each invalid record."""
    events = platform.events("plain")
    rows = events[events["oo_kind"] == "invalid"]
    reasons = {os.fsencode(name).decode("utf-8", "backslashreplace"): reason for name, (_, reason) in REFUSED.items()}
    reasons |= NO_FILES
    names = [Path(raw).name for raw in rows["oo_raw"]]
    return Counter((name, reasons[name] in reason) for name, reason in zip(names, rows["oo_reason"], strict=True))


@pytest.fixture
def plain(new_platform: Callable[..., Platform]) -> Platform:
    """A platform with the smallest pipeline and an empty inbox."""
    platform = new_platform("tests/support/plain.py")
    (platform.home / "inbox" / "plain").mkdir(parents=True)
    return platform


def test_run_of_invalid_files_only_says_all_and_why(
    plain: Platform, spark: object, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each file is one record, in the report and in the number that was to be taken in."""
    folder = plain.home / "inbox" / "plain"
    for name in ("parquet.jsonl", "utf16.jsonl"):
        (folder / name).write_bytes(REFUSED[name][0])

    report = plain.run("plain")

    [to_take_in] = [line for line in capfd.readouterr().err.splitlines() if "event='to take in'" in line]
    assert " records=2 " in to_take_in
    [warning] = report.warnings
    assert warning.startswith("invalid: all 2 of 2: they can't be read as declared, and are in no result. The most")
    assert "reason (1): the file is UTF-16 by its first bytes, and utf-8 is declared; put it in" in warning
    assert "They are declared at " in warning
    assert "plain.py:" in warning


def test_each_file_has_the_outcome_that_is_stated(
    plain: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd files are read, bad ones are one invalid record each with name and reason, others are left alone; a second
    run takes nothing again. A file that vanishes while its batch is read fails that run, and the next one goes on."""
    folder = plain.home / "inbox" / "plain"
    fill(folder)
    at(monkeypatch, "receive-registered", lambda: disturb(folder))

    plain.run("plain")

    wanted = Counter(name for _, ids in READ.values() for name in ids)
    names = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in [*REFUSED, *NO_FILES]]
    assert Counter(plain.sql("SELECT id FROM results.rows")["id"]) == wanted
    assert told(plain) == Counter((name, True) for name in names)
    assert set(LEFT_ALONE) <= {path.name for path in folder.iterdir()}

    shutil.rmtree(folder / "becomes a folder.jsonl")
    (folder / "becomes a link.jsonl").unlink()
    for name in ("grows.jsonl", "shrinks.jsonl"):
        (folder / name).unlink()
    assert plain.run("plain").facts["batches"] == 0

    for name in ("later", "lost"):
        (folder / f"{name}.jsonl").write_bytes(record(name) + b"\n")
    at(monkeypatch, "receive-after-begin", (folder / "lost.jsonl").unlink)
    with pytest.raises(Retryable, match="vanished") as failure:
        plain.run("plain")
    assert "run the same command again" in failure.value.hint
    plain.run("plain")

    assert Counter(plain.sql("SELECT id FROM results.rows")["id"]) == wanted + Counter(["later"])
    lost = plain.events("plain").query("oo_kind == 'invalid'").set_index("oo_raw")["oo_reason"]
    assert lost[str(folder / "lost.jsonl")] == "the file vanished before it was read"
    assert plain.run("plain").facts["batches"] == 0


@pytest.mark.slow
def test_a_line_of_100_mb_is_invalid_and_its_neighbours_are_kept(plain: Platform, spark: object) -> None:
    """One line, of 100 MB, in a driver of 2 GB: invalid, with its place, its size and how it begins; the lines around
    it are kept."""
    long = b'{"id":"long","shop":"' + b"x" * 100_000_000 + b'"}'
    (plain.home / "inbox" / "plain" / "a.jsonl").write_bytes(b"\n".join([record("before"), long, record("after"), b""]))

    plain.run("plain")

    events = plain.events("plain")
    invalid = events[events["oo_kind"] == "invalid"]
    assert sorted(plain.sql("SELECT id FROM results.rows")["id"]) == ["after", "before"]
    assert invalid["oo_raw"].tolist() == [long[:1024].decode()]
    assert f"has {len(long)} bytes" in invalid["oo_reason"].iloc[0]
    assert plain.run("plain").facts["batches"] == 0
