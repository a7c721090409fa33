"""Names of sharded files by a user's function: how it is called, what a name may be, and when two names collide. Pure.

The function gets the window, the number of the pane, the shard and the number of shards. It is called twice for each
file. A pane is numbered before its files are written, so a name that can't be given is refused before any row is
written. The end of the batch names the files again, in its transaction, and the log keeps the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.errors import FunctionFails, Refused, origin_of_function
from onlyonce.core.ownership import FOLDER
from onlyonce.core.shards import PANE, is_readable
from onlyonce.core.windows import Bounds, Chained, Session, Window, micros

HINT = "let the name have the window's start and end, the pane and the shard"
NOTHING_WRITTEN = "no file of the batch was written, and no file was moved"
NOT_ENDED = "the files of the batch keep their temporary names, and no file was moved; the batch is not ended"
SAMPLE_FROM = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
SAMPLE_AFTER = (timedelta(microseconds=1), timedelta(hours=1), *(timedelta(days=days) for days in (1, 7, 31, 365)))
SAMPLE_SHARDS = 8


@dataclass(frozen=True)
class FileWindow:
    """The window of a file, as a naming function gets it: two times in UTC."""

    start: datetime
    end: datetime


Naming = Callable[[FileWindow | None, int, int, int], str]
"""A user's function of (window, pane, shard, shards). The window is None for an output without windows."""


@dataclass(frozen=True)
class FileKey:
    """Which file of an output it is. For an output without windows both times are None."""

    window_start: datetime | None
    window_end: datetime | None
    pane: int
    shard: int

    def __str__(self) -> str:
        start, end = (None if time is None else time.astimezone(UTC) for time in (self.window_start, self.window_end))
        window = f"window [{start:%Y-%m-%d %H:%M:%S.%f}, {end:%Y-%m-%d %H:%M:%S.%f}), " if start and end else ""
        return f"{window}pane {self.pane}, shard {self.shard}"


def name_files(
    naming: Naming, subject: str, keys: Iterable[FileKey], shards: int, extension: str, data: str
) -> dict[FileKey, str]:
    """Return the name of each file by a user's function.

    Raise Refused if a name can't be given, if the function gives two names to a file, or one name to two files. Raise
    FunctionFails if the function raises.

    subject   the function, for messages
    data      what a refusal means for the data
    """
    at = f"{place}: " if (place := origin_of_function(naming)) else ""
    found: dict[FileKey, str] = {}
    of_name: dict[str, FileKey] = {}
    for key in keys:
        name, again = (_called(naming, f"{at}{subject}", key, shards, data) for _ in range(2))
        if name != again:
            raise Refused(
                f"{at}{subject} gives one file two names, {name!r} and {again!r} ({key})",
                data=data,
                hint="use only the arguments: no clock, no random value and no counter",
            )
        if why := wrong(name, extension):
            raise Refused(f"{at}{subject} gives the name {name!r} ({key}): {why[0]}", data=data, hint=why[1])
        if (other := of_name.setdefault(name, key)) != key:
            raise collision(f"{at}{subject}", name, other, key, data)
        found[key] = name
    return found


def refuse_taken(subject: str, named: Mapping[FileKey, str], taken: Iterable[tuple[str, FileKey]], data: str) -> None:
    """Raise Refused if an earlier file has one of the names. `taken`: the earlier files with these names."""
    of_name = {name: key for key, name in named.items()}
    for name, key in taken:
        raise collision(subject, name, key, of_name[name], data)


def collision(subject: str, name: str, first: FileKey, second: FileKey, data: str) -> Refused:
    """Return the error for two files with one name."""
    return Refused(f"{subject} gives two files the name {name!r}: {first}; and {second}", data=data, hint=HINT)


def wrong(name: object, extension: str) -> tuple[str, str] | None:
    """Return why a file can't have a name, and what to do; None if it can.

    No file name is a folder of another file: only the last part ends with the extension.
    """
    if not isinstance(name, str):
        return f"it is a {type(name).__name__}", "return a path as a string"
    if not is_readable(name):
        return (
            "it is no safe path below the sink's folder",
            "letters, digits and . _ = + - , folders by '/'; no part may begin with '.' or '_', which readers skip",
        )
    *folders, last = name.split("/")
    ending = f".{extension}"
    if not last.endswith(ending) or any(folder.endswith(ending) for folder in folders):
        return f"only its last part must end with {ending!r}", f"return …{ending}; or set the sink's extension"
    if any(FOLDER.size(part) > FOLDER.most for part in (*folders, last)):
        return f"a part of it is longer than {FOLDER.most} bytes", "return a shorter name"
    return None


def unnamed(temporary: str) -> str:
    """Return the name under which the log has a file before its pane has a number. No other file can have this name."""
    return f"{PANE}/{temporary}"


def sample(window: Window | None, shards: int) -> Iterator[FileKey]:
    """Yield files of some windows and panes, for a check before the first run: near windows, and the same hour of other
    days, weeks, months and years.
    """
    last = range(max(SAMPLE_SHARDS, shards - 1), shards)
    for start, end in _windows(window):
        for pane in (0, 1, 2, 10):
            for shard in (*range(min(shards, SAMPLE_SHARDS)), *last):
                yield FileKey(to_time(start), to_time(end), pane, shard)


def _windows(window: Window | None) -> list[Bounds] | list[tuple[None, None]]:
    if window is None:
        return [(None, None)]
    times = [SAMPLE_FROM, *(SAMPLE_FROM + micros(after) for after in SAMPLE_AFTER)]
    if isinstance(window, Session):
        # Sessions begin and end at any microsecond, and two of them may have the same start.
        gap = micros(window.gap)
        return [*((time, time + gap) for time in times), (SAMPLE_FROM, SAMPLE_FROM + gap + 1)]
    own = window.own if isinstance(window, Chained) else window
    found: set[Bounds] = set()
    for time in times:
        near = own.assign(time)
        found.update(near)
        found.update(own.assign(max(end for _, end in near)))
    return sorted(found)


def _called(naming: Naming, subject: str, key: FileKey, shards: int, data: str) -> str:
    window = None
    if key.window_start is not None and key.window_end is not None:
        window = FileWindow(key.window_start.astimezone(UTC), key.window_end.astimezone(UTC))
    try:
        return naming(window, key.pane, key.shard, shards)
    except Exception as error:  # the function is the user's and may raise anything
        raise FunctionFails(
            f"{subject} fails ({key}): {type(error).__name__}: {error}",
            data=data,
            hint="it gets (window, pane, shard, shards): window.start and window.end are times in UTC, or window is "
            "None for an output without windows",
        ) from error
