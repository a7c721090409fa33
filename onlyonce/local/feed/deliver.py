"""Puts a data set into an inbox: JSON-lines files in arrival order, with re-deliveries mixed in.

What is late depends on how the input is cut into batches, so everything here is fixed by the arguments:
the files, their names, their order and every byte. The files are cut by *first* deliveries: file k holds
the same new records whatever the share of re-deliveries is, and so the same records are late.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import pandas as pd

from onlyonce.local.feed import flights, user_counts
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location, Url
from onlyonce.storage import stores


@dataclass(frozen=True)
class DataSet:
    """A source of records in arrival order, the columns that identify one, and its usual number of files."""

    arrivals: Callable[[int | None, int], pd.DataFrame]
    record_id: tuple[str, ...]
    files: int


@dataclass(frozen=True)
class FeedReport:
    """What lies in the inbox after a feed; `written` of its files are new, the others were there before."""

    files: int
    lines: int
    distinct: int
    duplicates: int
    written: int


DATA_SETS = {
    "flights": DataSet(flights.arrivals, flights.RECORD_ID, files=48),
    "user_counts": DataSet(user_counts.arrivals, user_counts.RECORD_ID, files=18),
}


def feed(
    pipeline: str,
    inbox: Location,
    *,
    duplicates: float = 0.05,
    seed: int = 1,
    files: int | None = None,
    records: int | None = None,
) -> FeedReport:
    """Write the pipeline's data set to `inbox`, a folder or a prefix of a store, and say what is there.

    Called by the command line and tests.

    `duplicates` is the number of re-deliveries for each record: 0.05 makes 105 lines of 100 records. A
    record may come again several times, byte for byte the same. `records` is a limit (all by default),
    `files` how many files (the data set's own number by default, or one for each record if these are fewer).

    The same call again writes nothing. Raises Refused, with nothing written, for an unknown pipeline, an
    argument out of range, or a file of one of the names with other content: a file that a run may have
    seen is never replaced. A feed that was killed leaves whole files and perhaps one temporary dot-name;
    the same call completes it. Not promised: two different feeds into one inbox at the same time.
    """
    arrivals, deliveries = delivered(pipeline, duplicates=duplicates, seed=seed, files=files, records=records)
    lines, count = json_lines(arrivals), len(deliveries)
    names = [f"{pipeline}-{number:04d}-of-{count:04d}.jsonl" for number in range(1, count + 1)]
    missing = [name for name, part in zip(names, deliveries, strict=True) if not _is_there(inbox / name, lines[part])]
    for name, part in zip(names, deliveries, strict=True):
        if name in missing:
            _write(inbox / name, lines[part])
    total = sum(part.size for part in deliveries)
    return FeedReport(count, total, len(lines), total - len(lines), len(missing))


def delivered(
    pipeline: str, *, duplicates: float, seed: int, files: int | None, records: int | None
) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """The records of a pipeline's data set, and which of them each file delivers.

    Raises Refused. Also for `publish`.
    """
    data = _data_set(pipeline)
    _check(duplicates, seed, files, records)
    arrivals = data.arrivals(records, seed)
    count = files or min(data.files, len(arrivals))
    if count > len(arrivals):
        raise Refused(f"{len(arrivals)} records do not fill {count} files", hint="ask for fewer files")
    return arrivals, schedule(len(arrivals), count, duplicates, seed)


def json_lines(records: pd.DataFrame) -> np.ndarray:
    """Each row as compact JSON, an array of text without newlines. Called by `feed`."""
    text = records.to_json(orient="records", lines=True, double_precision=15)
    return np.array(text.splitlines(), dtype=object)


def schedule(records: int, files: int, duplicates: float, seed: int) -> list[np.ndarray]:
    """Which records each file delivers, in order: for each file the positions of its lines' records.

    Each record is first delivered at its own place. Half of the re-deliveries follow within some twenty
    records, so mostly in the same file; the other half about a file later, some of them several files.
    Another release of numpy may place them elsewhere. Pure. Called by `feed` and by tests.
    """
    # The leading 2 keeps this stream of random numbers apart from that of the made-up events.
    random = np.random.default_rng([2, seed])
    again = random.integers(records, size=round(duplicates * records))
    wait = random.exponential(np.where(random.random(again.size) < 0.5, 20.0, records / files))
    places = np.concatenate([np.arange(records), np.minimum(again + wait, records - 1)])
    # Stable: where two share a place the first delivery, which stands first here, stays first.
    order = np.argsort(places, kind="stable")
    starts = np.arange(1, files) * records // files
    delivered = np.concatenate([np.arange(records), again])[order]
    return np.split(delivered, np.searchsorted(places[order], starts))


def _data_set(pipeline: str) -> DataSet:
    if pipeline in DATA_SETS:
        return DATA_SETS[pipeline]
    near = get_close_matches(pipeline, DATA_SETS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"one of: {', '.join(DATA_SETS)}"
    raise Refused(f"there is no data to feed to '{pipeline}'", hint=hint)


def _check(duplicates: float, seed: int, files: int | None, records: int | None) -> None:
    if not 0 <= duplicates <= 1:
        raise Refused(f"duplicates is {duplicates}", hint="give a share from 0 to 1, like 0.05")
    if seed < 0:
        raise Refused(f"the seed is {seed}", hint="give a whole number from 0 on")
    for name, value in (("files", files), ("records", records)):
        if value is not None and value < 1:
            raise Refused(f"{name} is {value}", hint="give a whole number from 1 on")


def _content(lines: np.ndarray) -> bytes:
    return ("\n".join(lines.tolist()) + "\n").encode()


def _is_there(at: Location, lines: np.ndarray) -> bool:
    try:
        there = stores.of(at).read(at)
    except FileNotFoundError:
        return False
    if there == _content(lines):
        return True
    raise _other_content(at.name)


def _write(at: Location, lines: np.ndarray) -> None:
    """The file appears whole or not at all: written under a dot-name that no source lists, then renamed; or by one
    conditional PUT."""
    if isinstance(at, Url):
        if not stores.of(at).put_new(at, _content(lines)):
            raise _other_content(at.name)
        return
    at.parent.mkdir(parents=True, exist_ok=True)
    temporary = at.with_name(f".{at.name}.tmp")
    with temporary.open("wb") as file:
        file.write(_content(lines))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(at)


def _other_content(name: str) -> Refused:
    return Refused(
        f"{name} is in the inbox already, with other content",
        data="it was left as it is: a run may have read that file, and a file is never replaced",
        hint="repeat the feed with the options of the first time, or declare another inbox (Files(inbox=...))",
    )
