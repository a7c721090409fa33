"""Files of a sharded sink: their final and temporary names, and which temporary files may be removed. Pure.

A final name has the window, the pane and the shard. A temporary name has the unit, the epoch and the attempt. So the
name alone decides, with the log, whether an attempt may still need the file.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import FOLDER

NAMING = stored_names.RESULT_FILE
NEEDED = ("window_start", "window_end", "pane", "shard")
KNOWN = (*NEEDED, "shards", "prefix", "ext")
PANE = "{pane}"
"""Placeholder in a name until the end of the batch numbers the pane."""
EXTENSIONS = {"jsonl": "jsonl", "csv": "csv", "text": "txt", "parquet": "parquet", "avro": "avro"}
MOST = 10_000
MOST_PANES = 10**9
NO_WINDOW = stored_names.NO_WINDOW

_LITERAL = re.compile(r"[\w.=+/-]*", re.ASCII)
_TEMPORARY = re.compile(
    r"(?P<incarnation_no>\d+)-(?P<batch_id>\d+)-(?P<output>[a-z][a-z0-9_]*)-(?P<partition>\d+)"
    r"\.epoch-(?P<epoch>\d+)\.(?P<attempt>[0-9a-f]{32})-(?P<number>\d+)\..+"
)


@dataclass(frozen=True)
class Shard:
    """A file of a window. For an output without windows both times are None."""

    window_start: datetime | None
    window_end: datetime | None
    shard: int
    shards: int


@dataclass(frozen=True)
class Written:
    """A file that an attempt has written under a temporary name.

    `name` is its final name with the placeholder `{pane}`, which is replaced by the pane's number.
    """

    window_start: datetime | None
    window_end: datetime | None
    shard: int
    temporary: str
    name: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Winner:
    """A file that counts, with its pane."""

    file_no: int
    instance: str
    output: str
    window_start: datetime | None
    window_end: datetime | None
    generation: int
    pane: int
    shard: int
    shards: int
    place: str
    temporary: str
    name: str
    rows: int
    bytes: int
    checksum: str
    finalized_at: datetime | None

    @property
    def of_pane(self) -> tuple[Any, ...]:
        """Return what the files of one pane have in common."""
        return self.instance, self.output, self.window_start, self.window_end, self.pane


@dataclass(frozen=True)
class Temporary:
    """The parts of a temporary name: the unit, its driver's epoch, and the task's random attempt."""

    incarnation_no: int
    batch_id: int
    output: str
    partition: int
    epoch: int
    attempt: str

    def file(self, number: int, extension: str) -> str:
        """Return the name of a file of this attempt."""
        attempt = stored_names.temporary_file(
            self.incarnation_no, self.batch_id, self.output, self.partition, self.epoch, self.attempt
        )
        return f"{attempt}-{number}.{extension}"


@dataclass(frozen=True)
class Standing:
    """The log's rows of a temporary file, read in one query after the file was seen.

    winner     it is recorded as the file that counts, and its batch is begun or committed
    settled    its unit or batch is committed, so that no other attempt can win any more
    epoch      the highest epoch of its incarnation; None for an incarnation that this log does not know
    """

    winner: bool
    settled: bool
    epoch: int | None


def may_go(temporary: Temporary, standing: Standing) -> bool:
    """Return whether no attempt, running or not, can need a temporary file any more.

    Its age does not decide. A task that was suspended for a day may still commit if its epoch is the highest and its
    unit is open. The files of an unknown incarnation stay.
    """
    if standing.winner or standing.epoch is None:
        return False
    return standing.settled or temporary.epoch < standing.epoch


def read_temporary(name: str) -> Temporary | None:
    """Return the parts of a temporary name; None for a file that is not ours."""
    found = _TEMPORARY.fullmatch(name)
    if found is None:
        return None
    part = found.groupdict()
    return Temporary(
        int(part["incarnation_no"]), int(part["batch_id"]), part["output"], int(part["partition"]), int(part["epoch"]),
        part["attempt"],
    )  # fmt: skip


def check_naming(naming: str, prefix: str | None, extension: str | None) -> None:
    """Raise Refused for a naming by which two files could have one name, or that readers would not find."""
    try:
        parts = list(string.Formatter().parse(naming))
    except ValueError as error:
        raise Refused(f"FileSink: naming {naming!r}: {error}", hint=f"the default is {NAMING!r}") from error
    fields = [field for _, field, _, _ in parts if field is not None]
    if unknown := [field for field in fields if field not in KNOWN]:
        raise Refused(f"FileSink: naming {naming!r} has {unknown[0]!r}", hint=f"it can have: {', '.join(KNOWN)}")
    if any(how or conversion for _, _, how, conversion in parts):
        raise Refused(f"FileSink: naming {naming!r} has a format", hint="write the names in braces alone: {shard}")
    if missing := [field for field in NEEDED if field not in fields]:
        raise Refused(
            f"FileSink: naming {naming!r} lacks {', '.join(missing)}: two files would have one name",
            hint=f"the default is {NAMING!r}",
        )
    example = naming.format_map(dict.fromkeys(KNOWN, "x") | {"prefix": prefix or "x", "ext": extension or "x"})
    if not is_readable(example):
        raise Refused(
            f"FileSink: names like {example!r}",
            hint="letters, digits and . _ = + - , folders by '/'; no part may begin with '.' or '_', which "
            "readers skip",
        )


def check_length(naming: str, output: str, prefix: str, extension: str) -> None:
    """Raise Refused if a file of an output can have a name that is longer than file systems take.

    Its rows would be committed, and the file could never get the name."""
    end = datetime(9999, 12, 31, 23, 59, 59, 999_999)
    final = name(naming, prefix, extension, Shard(end, end, MOST, MOST)).replace(PANE, str(MOST_PANES))
    temporary = Temporary(MOST_PANES, MOST_PANES, output, MOST, MOST_PANES, "0" * 32).file(MOST, extension)
    if long := [part for part in (*final.split("/"), temporary) if FOLDER.size(part) > FOLDER.most]:
        raise Refused(
            f"output {output}: a file could have the name {long[0]!r}, which is longer than {FOLDER.most} bytes",
            data="nothing was written",
            hint="give the FileSink a shorter prefix or naming, or the output a shorter name",
        )


def name(naming: str, prefix: str, extension: str, shard: Shard) -> str:
    """Return the final name of a shard, with the placeholder `{pane}`."""
    return naming.format(
        prefix=prefix, ext=extension, pane=PANE, shard=f"{shard.shard:05}", shards=f"{shard.shards:05}",
        window_start=_time(shard.window_start), window_end=_time(shard.window_end),
    )  # fmt: skip


def is_readable(name: str) -> bool:
    """Return whether a name is a relative path that stays in its folder, and that all readers find."""
    return bool(_LITERAL.fullmatch(name)) and all(part and part[0] not in "._" for part in name.split("/"))


def _time(time: datetime | None) -> str:
    # No colon: a file with one in its name can't be read through Hadoop.
    if time is None:
        return NO_WINDOW
    fraction = f".{time.microsecond:06}" if time.microsecond else ""
    # Not %Y: on Linux it has no zeros before a year below 1000.
    return f"{time.year:04}{time:%m%dT%H%M%S}{fraction}Z"
