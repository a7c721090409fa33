"""Check that a query's checkpoint agrees with its incarnation in the log. docs/specification/incarnation.md.

The second part reads the keys and values in snapshots of a query's state, which are RocksDB tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from onlyonce import settings
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.tables import stores

_PROVIDER, _PARTITIONS = "spark.sql.streaming.stateStore.providerClass", "spark.sql.shuffle.partitions"

OLD_COPY = "the checkpoint was restored from an older copy, or the log from a newer one"


@dataclass(frozen=True)
class State:
    """Where a query keeps its state, and in how many partitions: fixed by its first batch."""

    provider: str
    partitions: int


def prepare(folder: Location, incarnation: str, checkpoint_id: UUID, begun: int | None) -> None:
    """Make the checkpoint of a new incarnation, or check that the existing one is the registered one.

    Spark keeps an existing `metadata` file. Raise Refused if it was lost or swapped.
    """
    if is_its_own(folder, incarnation, checkpoint_id, begun):
        return
    at = folder / "metadata"
    stores.of(at).put_new(at, json.dumps({"id": str(checkpoint_id)}).encode())  # two drivers may start at once


def is_its_own(folder: Location, incarnation: str, checkpoint_id: UUID, begun: int | None) -> bool:
    """Return whether the checkpoint exists and is the registered one; False for an incarnation that has none yet.

    Raise Refused if it was lost or swapped.
    """
    there = identity(folder)
    if there == str(checkpoint_id):
        return True
    way_out = f"put it back, or start a new incarnation from the log: onlyonce reset {incarnation.rsplit('/', 1)[0]}"
    if there is not None:
        raise Refused(
            f"the checkpoint at {folder} is {there}, but incarnation {incarnation} is bound to {checkpoint_id}",
            data="nothing was read or written; with another checkpoint the same batch ids would mean other data",
            hint=f"the folder was swapped or copied. {way_out}",
        )
    if begun is not None:
        _refuse_elsewhere(folder, incarnation, checkpoint_id, begun)
        raise Refused(
            f"the checkpoint of incarnation {incarnation} is gone from {folder}, but its batches up to {begun} are in "
            "the log",
            data="nothing was read or written; a new checkpoint would begin at batch 0 and write everything again",
            hint=way_out,
        )
    return False


def _refuse_elsewhere(folder: Location, incarnation: str, checkpoint_id: UUID, begun: int) -> None:
    """Raise Refused if not the checkpoint alone is gone, but all data of its pipeline: then it is somewhere else."""
    checkpoints = folder.parent.parent
    data, root = checkpoints.parent, settings.data_root()
    if any(stores.of(data).names(data)):
        return
    at_home = settings.home() / stored_names.DATA_FOLDER / data.name
    if identity(at_home / checkpoints.name / folder.parent.name / folder.name) == str(checkpoint_id):
        folders = f"{stored_names.DATA_FOLDER} and {stored_names.TABLES_FOLDER}"
        way_out = (
            f"it is in {at_home}: unset ONLYONCE_DATA; or move the folders {folders} of {settings.home()} to {root}"
        )
    else:
        way_out = (
            f"set ONLYONCE_DATA to the place where it is, or move it to {root}. If it is lost, restore PostgreSQL and "
            "all data from one moment"
        )
    raise Refused(
        f"there is no data of {data.name} in {root}, but the log has batches of incarnation {incarnation} up to "
        f"{begun}: ONLYONCE_DATA has changed, or the data was moved",
        data="nothing was read or written, and what is committed stays where it is",
        hint=way_out,
    )


def sweep(folder: Location) -> None:
    """Remove the half-written files of a driver that was killed before the first batch had an offset.

    With such a file Spark would refuse to begin that batch, at every run. A driver that still writes is fenced; it
    loses its file and ends.
    """
    if last(folder, "offsets") >= 0:
        return
    for kind in ("offsets", "commits"):
        for name in [*stores.of(folder).names(folder / kind)]:
            if name.startswith("."):
                stores.of(folder).delete(folder / kind / name)


def identity(folder: Location) -> str | None:
    """Return the id in the checkpoint's `metadata` file; None if there is none. Raise Refused if it is unreadable."""
    try:
        return str(json.loads(_text(folder / "metadata"))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"the file {folder / 'metadata'} is damaged: {error}",
            data="nothing was read or written",
            hint="restore the checkpoint from a copy that is as old as the commit log, "
            "or start a new incarnation: onlyonce reset",
        ) from error


def compare(folder: Location, incarnation: str, committed: int | None) -> None:
    """Raise Refused unless the checkpoint is whole and the log's last committed batch is its last, or one more.

    One more: the driver died between the end of the batch and Spark's own commit file.
    """
    in_checkpoint = last(folder, "commits")
    _whole(folder, incarnation)
    if (committed if committed is not None else -1) - in_checkpoint in (0, 1):
        return
    behind = committed is None or committed < in_checkpoint
    raise Refused(
        f"incarnation {incarnation}: the log's last committed batch is {committed}, the checkpoint's is "
        f"{in_checkpoint}",
        data="nothing was read or written. "
        + (
            "The log is behind: batches are in the tables that it does not know"
            if behind
            else "The checkpoint is behind: it would replay batches that are committed"
        ),
        hint="PostgreSQL was restored from an older backup than the tables and checkpoints: restore all of them "
        "from one moment (a new incarnation would write again what the log has forgotten)"
        if behind
        else f"{OLD_COPY}; restore both from one moment, or: onlyonce reset {incarnation.rsplit('/', 1)[0]}",
    )


def _whole(folder: Location, incarnation: str) -> None:
    # Spark reads the last two offsets and the last commit. Its own errors about them don't say what to do next.
    planned, done = last(folder, "offsets"), last(folder, "commits")
    wanted = [("offsets", n) for n in range(max(done - 1, 0), planned + 1)] + [("commits", done)]
    problem = f"offsets/{done} is missing" if planned < done else None
    for kind, number in wanted:
        if number >= 0 and problem is None:
            problem = _problem(folder / kind / str(number))
    if problem:
        raise Refused(
            f"the checkpoint of incarnation {incarnation} at {folder} is damaged: {problem}",
            data="nothing was read or written",
            hint="restore the checkpoint from a copy that is as old as the commit log, "
            f"or start a new incarnation from the log: onlyonce reset {incarnation.rsplit('/', 1)[0]}",
        )


def _problem(file: Location) -> str | None:
    name = f"{file.parent.name}/{file.name}"
    try:
        version, *lines = _text(file).strip().splitlines() or [""]
        for line in lines:
            json.loads(line)
    except FileNotFoundError:
        return f"{name} is missing"
    except ValueError as error:
        return f"{name} can't be read: {error}"
    # Offsets are metadata and one line for each source; a commit is one line.
    needed = 2 if file.parent.name == "offsets" else 1
    return None if version.startswith("v") and len(lines) >= needed else f"{name} is cut short"


def last(folder: Location, kind: str) -> int:
    """Return the highest batch in `offsets` or `commits`; -1 before the first."""
    names = stores.of(folder).names(folder / kind)
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _text(file: Location) -> str:
    return stores.of(file).read(file).decode()


def offsets(folder: Location, batch_id: int) -> tuple[dict[str, object], str]:
    """Return the (only) source's offset of a batch, and the hash of its whole offsets file."""
    text = _text(folder / "offsets" / str(batch_id))
    return json.loads(text.strip().splitlines()[-1]), hashlib.sha256(text.encode()).hexdigest()[:32]


def state_of(folder: Location) -> State | None:
    """Return the state settings that Spark noted with a query's last planned batch; None before the first."""
    planned = last(folder, "offsets")
    if planned < 0:
        return None
    conf = json.loads(_text(folder / "offsets" / str(planned)).strip().splitlines()[1])["conf"]
    return State(conf[_PROVIDER], int(conf[_PARTITIONS]))


def watermark_moved(folder: Location) -> bool:
    """Return whether the last batch has ended with a newer watermark than it began with.

    Then Spark runs a query that keeps a state again, without rows.
    """
    number = last(folder, "commits")
    begun = json.loads(_text(folder / "offsets" / str(number)).splitlines()[1])["batchWatermarkMs"]
    return bool(json.loads(_text(folder / "commits" / str(number)).splitlines()[1])["nextBatchWatermarkMs"] != begun)


# Read the keys and values of a RocksDB table (`.sst`), in which Spark's snapshots keep state.
#
# Blocks are compressed, and a key has only what differs from the key before it.
#
# Follows RocksDB's block-based table format of versions 4 and 5 (Spark writes 5) with one index block. Raises
# NotDecoded for another format, and ValueError or IndexError for a damaged file.


MAGIC = bytes.fromhex("f7cff485b741e288")
FOOTER = 53
NUMBERED = 8
"""The bytes of RocksDB's own at the end of each key: the entry's number and kind."""
SNAPPY, ZSTD = 1, 7
LZ4 = (4, 5)


class NotDecoded(Exception):
    """A format that no decoder reads. The message names it."""


class Handle(NamedTuple):
    """The position of a block."""

    at: int
    size: int


def is_state_table(content: bytes) -> bool:
    """Return whether these bytes are a RocksDB table."""
    return content.endswith(MAGIC)


def state_entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each entry."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-12:-8], "little") not in range(4, 6):
        raise NotDecoded("a RocksDB table of another version")
    _, at = _handle(footer, 1)  # the first handle is the block of the table's properties
    index, _ = _handle(footer, at)
    for handle in _data_blocks(_block(content, index)):
        yield from _entries(_block(content, handle))


def _data_blocks(index: bytes) -> Iterator[Handle]:
    """Yield the handles of the data blocks.

    An index entry has a key and a handle. Since version 4 the handle has no length before it. Except at a restart point
    it has only the difference of sizes.
    """
    end, at, last = _end(index), 0, Handle(0, 0)
    while at < end:
        shared, at = _varint(index, at)
        fresh, at = _varint(index, at)
        at += fresh
        if shared:
            raise NotDecoded("a RocksDB table whose index has long restart intervals")
        last, at = _handle(index, at)
        yield last


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, at, key = _end(block), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key[:-NUMBERED], block[at : at + size]
        at += size


def _end(block: bytes) -> int:
    """Return where a block's entries end and its restart points begin."""
    restarts = int.from_bytes(block[-4:], "little") & 0x7FFFFFFF
    return len(block) - 4 - 4 * restarts


def _block(content: bytes, handle: Handle) -> bytes:
    stored, kind = content[handle.at : handle.at + handle.size], content[handle.at + handle.size]
    if kind == 0:
        return stored
    size, at = _varint(stored, 0)
    if kind == SNAPPY:
        return _decompressed("snappy", stored, size)
    if kind == ZSTD or kind in LZ4:
        return _decompressed("zstd" if kind == ZSTD else "lz4_raw", stored[at:], size)
    raise NotDecoded(f"a RocksDB table with compression {kind}")


def _decompressed(codec: str, stored: bytes, size: int) -> bytes:
    return bytes(pa.Codec(codec).decompress(stored, size)) if size else b""


def _handle(content: bytes, at: int) -> tuple[Handle, int]:
    begins, at = _varint(content, at)
    size, at = _varint(content, at)
    return Handle(begins, size), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
