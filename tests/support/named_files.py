"""Functions that name files, and functions that can't."""

from __future__ import annotations

from itertools import count

from onlyonce.core.file_names import FileWindow

CALLS = count()


def by_month_and_day(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """A folder for each month, with one for each day."""
    return f"{window.start:%Y-%m}/{window.start:%d}/{window.start:%H%M}-p{pane}-{shard}of{shards}.jsonl"


def by_day(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """A folder for each day."""
    return f"day={window.start:%Y-%m-%d}/{window.start:%H%M}-{window.end:%H%M}-p{pane}-{shard}of{shards}.jsonl"


def of_totals(window: FileWindow | None, pane: int, shard: int, shards: int) -> str:
    """For an output without windows."""
    assert window is None
    return f"totals/{pane}-{shard}.jsonl"


def of_minute(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """The same name in every hour."""
    return f"{window.start:%M}-{pane}-{shard}.jsonl"


def without_pane(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """A later pane has the name of the one before."""
    return f"{window.start:%Y%m%d%H%M%S%f}-{shard}.jsonl"


def without_shard(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """All shards have one name."""
    return f"{window.start:%Y%m%d%H%M}-{pane}.jsonl"


def without_day(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """The same hour of two days has one name."""
    return f"{window.start:%H%M%S}-{pane}-{shard}.jsonl"


def counting(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Another name with each call."""
    return f"{next(CALLS)}.jsonl"


def failing(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """A mistake."""
    folders: dict[int, str] = {}
    return folders[shard]


def of_three(window: FileWindow, pane: int, shard: int) -> str:
    """One parameter too few."""
    return "x.jsonl"


def above(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Out of the folder."""
    return f"../{by_day(window, pane, shard, shards)}"


def absolute(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Out of the folder."""
    return f"/tmp/{by_day(window, pane, shard, shards)}"


def broken(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """A control character."""
    return f"a\n{by_day(window, pane, shard, shards)}"


def hidden(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Among the temporary files."""
    return f".pending/{shard}.jsonl"


def other_format(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Another extension."""
    return by_day(window, pane, shard, shards).replace("jsonl", "csv")


def folder_like_a_file(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """A folder that has the name of another file."""
    return f"a.jsonl/{shard}.jsonl" if shard else "a.jsonl"


def number(window: FileWindow, pane: int, shard: int, shards: int) -> int:
    """No name."""
    return shard


def long(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """Longer than file systems take."""
    return f"{'x' * 250}{shard}.jsonl"
