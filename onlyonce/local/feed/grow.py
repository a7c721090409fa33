"""Appends a data set to files that grow, as a logger does: in pieces, most of which end in the middle of a line.

Which records, in which order, how often and into which file is fixed by the arguments, as for files (`deliver`): a data
set in order of arrival, with re-deliveries. The seed chooses the file of each line, so the files are out of order with
each other too. Every call ends with whole lines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onlyonce.local.feed import deliver
from onlyonce.model.errors import Refused

LONGEST = 4096
"""Bytes of one piece at most."""
FILES = 2


@dataclass(frozen=True)
class Grown:
    """What the files hold after a feed; `appended` bytes of it are new."""

    files: int
    lines: int
    distinct: int
    duplicates: int
    appended: int


def feed(
    pipeline: str, inbox: Path, *, duplicates: float = 0.05, seed: int = 1, files: int | None = None,
    records: int | None = None, rate: float | None = None,
) -> Grown:  # fmt: skip
    """Append the pipeline's data set to `files` files (2), `rate` lines a second if that is given.

    For the command line and tests.

    The same call again appends what is missing, so nothing after one that came to its end. Raises Refused, with nothing
    written, for an unknown pipeline, an argument out of range, or a file of one of the names that holds something else.
    """
    count = files or FILES
    arrivals, parts = deliver.delivered(pipeline, duplicates=duplicates, seed=seed, files=None, records=records)
    lines = [f"{line}\n".encode() for line in deliver.json_lines(arrivals)[np.concatenate(parts)]]
    chance = np.random.default_rng([3, seed])
    into = chance.integers(count, size=len(lines))
    paths = [inbox / f"{pipeline}-{number:02d}.log" for number in range(count)]
    content = [b"".join(line for line, at in zip(lines, into, strict=True) if at == number) for number in range(count)]
    there = [_there(path, whole) for path, whole in zip(paths, content, strict=True)]
    inbox.mkdir(parents=True, exist_ok=True)
    for number, piece in paced(pieces(content, there, chance), rate, sum(map(len, content)) / max(len(lines), 1)):
        with paths[number].open("ab") as file:
            file.write(piece)
    return Grown(count, len(lines), len(arrivals), len(lines) - len(arrivals), sum(map(len, content)) - sum(there))


def pieces(content: list[bytes], there: list[int], chance: np.random.Generator) -> Iterator[tuple[int, bytes]]:
    """(file, bytes to append), in turn; cut anywhere."""
    at = list(there)
    while left := [number for number, whole in enumerate(content) if at[number] < len(whole)]:
        number = int(chance.choice(left))
        end = min(at[number] + int(chance.integers(1, LONGEST)), len(content[number]))
        yield number, content[number][at[number] : end]
        at[number] = end


def paced(appended: Iterator[tuple[int, bytes]], rate: float | None, line_bytes: float) -> Iterator[tuple[int, bytes]]:
    """The pieces, each no sooner than its first line is due."""
    begun, done = time.monotonic(), 0
    for number, piece in appended:
        if rate is not None:
            time.sleep(max(0.0, begun + done / line_bytes / rate - time.monotonic()))
        yield number, piece
        done += len(piece)


def _there(path: Path, whole: bytes) -> int:
    held = path.read_bytes() if path.exists() else b""
    if whole.startswith(held):
        return len(held)
    raise Refused(
        f"{path.name} is in the inbox already, and holds something else",
        data="nothing was written; what a run may have read is never changed",
        hint="repeat the feed with the options of the first time, or declare another inbox (Growing(inbox=...))",
    )
