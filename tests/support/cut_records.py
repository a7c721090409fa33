"""Records in order of time, most of them, cut into files with re-deliveries; and which of them a plain reader of the
files calls in time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Record = dict[str, Any]


def times(chance: random.Random, count: int, minutes: int, behind: tuple[int, ...] = (0,)) -> list[str]:
    """So many times in the first minutes, in order, each by one of these seconds behind its place."""
    placed = sorted(chance.randrange(minutes * 60_000) for _ in range(count))
    return [(START + timedelta(milliseconds=max(0, at - 1000 * chance.choice(behind)))).isoformat() for at in placed]


def cut(chance: random.Random, them: list[Record], parts: int) -> list[list[Record]]:
    """The records in files, most of which have records of earlier files again."""
    places = sorted(chance.sample(range(1, len(them)), parts - 1))
    files = [them[a:b] for a, b in zip([0, *places], [*places, len(them)], strict=True)]
    return [file + chance.sample(them[: places[0]], min(2, places[0])) for file in files]


def at(record: Record) -> datetime:
    """When it happened."""
    return datetime.fromisoformat(record["at"])


def floor(time: datetime, size: timedelta = MINUTE) -> datetime:
    """The start of its window."""
    return START + (time - START) // size * size


def came(files: list[list[Record]]) -> Iterator[tuple[Record, datetime | None]]:
    """Each distinct record, with the largest time of the files before its own."""
    seen: set[str] = set()
    max_event_time = None
    for file in files:
        new = list({one["id"]: one for one in file if one["id"] not in seen}.values())
        yield from ((one, max_event_time) for one in new)
        seen |= {one["id"] for one in new}
        max_event_time = max([at(one) for one in new] + ([max_event_time] if max_event_time else []))


def in_time(files: list[list[Record]], watermark_delay: timedelta) -> list[Record]:
    """Each distinct record that is not behind what earlier files have told, less the watermark delay."""
    return [
        one
        for one, max_event_time in came(files)
        if max_event_time is None or at(one) > max_event_time - watermark_delay
    ]
