"""The events of Nexmark: people who register, auctions that they open, and bids.

Of each fifty one is a person, three are auctions, the others bids.

The numbers are the benchmark's own (Tucker et al., and Beam's generator), the values are drawn by a seed: one seed, one
stream. Most bids are for one of the auctions that are still open, half of those for a few hot ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = (
    "id string, kind string, at timestamp, person long, name string, city string, state string, auction long, "
    "item string, category long, "
    "seller long, expires timestamp, bidder long, price long, channel string"
)
STATES = ("OR", "ID", "CA", "AZ", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
CHANNELS = ("apple", "google", "facebook", "baidu")
APART = 41
"""Auctions are numbered so far apart: every third is one of query 2, also in a small set."""
IN_FIFTY = ("person", "auction", "auction", "auction")
HOT = 10
"""One of so many people sells much."""
BEHIND = timedelta(seconds=3)
"""How far an event may be behind one that came before it."""
LONGEST = timedelta(seconds=30)
"""For how long an auction is open at most."""
Event = dict[str, Any]


@dataclass
class Generator:
    """Makes events in the order in which they are sent.

    seed       what decides all values
    a_second   how many events happen in a second of event time
    """

    seed: int
    a_second: int = 10
    _people: int = 0
    _auctions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)

    def events(self, count: int) -> Iterator[Event]:
        """So many events. A time is up to `BEHIND` earlier than that of its place."""
        for number in range(count):
            kind = IN_FIFTY[number % 50] if number % 50 < len(IN_FIFTY) else "bid"
            back = self._chance.choice((0, 0, 0, self._chance.randrange(int(BEHIND.total_seconds() * 1000))))
            at = max(START, START + timedelta(milliseconds=number * 1000 // self.a_second - back))
            yield {"id": f"{kind}-{number}", "kind": kind, "at": at.isoformat(), **getattr(self, f"_{kind}")(at)}

    def _person(self, at: datetime) -> Event:
        self._people += 1
        number = 1000 + self._people
        return {
            "person": number,
            "name": f"person {number}",
            "city": self._chance.choice(CITIES),
            "state": self._chance.choice(STATES),
        }

    def _auction(self, at: datetime) -> Event:
        number = APART * (24 + len(self._auctions))
        self._auctions.append(number)
        expires = at + timedelta(seconds=self._chance.randint(5, LONGEST.seconds))
        return {
            "auction": number, "item": f"item {number}", "category": 10 + self._chance.randrange(5), "seller": self._seller(),
            "expires": expires.isoformat(),
        }  # fmt: skip

    def _bid(self, at: datetime) -> Event:
        hot = self._auctions[-4:-2] or self._auctions
        auction = self._chance.choice(hot if self._chance.random() < 0.5 else self._auctions[-40:])
        price = int(10 ** (self._chance.random() * 6)) * 100
        return {"auction": auction, "bidder": self._someone(), "price": price, "channel": self._chance.choice(CHANNELS)}

    def _seller(self) -> int:
        # Half of the auctions are those of a few.
        return 1001 + (self._people - 1) // HOT * HOT if self._chance.random() < 0.5 else self._someone()

    def _someone(self) -> int:
        # Mostly a person who has just come, as in the benchmark.
        return 1000 + max(1, self._people - int(self._chance.expovariate(0.3)))


def files(events: Sequence[Event], parts: int, again: int = 3) -> list[list[Event]]:
    """The events in files, in their order; each file has some of the one before again."""
    size = -(-len(events) // parts)
    cut = [list(events[n : n + size]) for n in range(0, len(events), size)]
    return [part + (cut[n - 1][:again] if n else []) for n, part in enumerate(cut)]


def write(folder: Path, count: int, parts: int, seed: int, a_second: int) -> list[Path]:
    """Files of JSON lines, made one after the other: a large set does not fit into memory."""
    folder.mkdir(parents=True, exist_ok=True)
    made, size, paths = Generator(seed, a_second).events(count), -(-count // parts), []
    for number in range(parts):
        path = folder / f"{number:04d}.jsonl"
        with path.open("w") as file:
            for _, event in zip(range(min(size, count - number * size)), made, strict=False):
                file.write(json.dumps(event, separators=(",", ":")) + "\n")
        paths.append(path)
    return paths
