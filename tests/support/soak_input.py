"""The input of a soak: a file of user events each second, with disorder, rows that come late, and re-deliveries."""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.platform import Platform

PIPELINE = "user_counts"
RECORDS_A_SECOND = 2_000
AGAIN = RECORDS_A_SECOND // 20
USERS = 500
SPEED = 10
"""Seconds of event time in a second: a window of a minute is full after six."""

MEMORY = 20_000
"""How many earlier lines may be delivered again; by chance, of any age."""


class Source:
    """What a producer delivers, second by second. Pure: the seed and the first event time give everything."""

    def __init__(self, seed: int, first: datetime) -> None:
        self._chance = random.Random(seed)
        self._first = first
        self._made = 0
        self._on_the_way: list[tuple[float, str, str]] = []
        self._memory: list[str] = []
        self.ids: list[str] = []

    def file(self, second: int) -> list[str]:
        """The lines of one second: those that have arrived by its end, and some that came before."""
        for _ in range(RECORDS_A_SECOND - AGAIN):
            self._send((second + self._chance.random()) * SPEED)
        arrived = []
        while self._on_the_way and self._on_the_way[0][0] < (second + 1) * SPEED:
            arrived.append(self._deliver())
        return arrived + self._chance.sample(self._memory, min(AGAIN, len(self._memory)))

    def rest(self) -> list[str]:
        """What is still on the way when the producer stops."""
        return [self._deliver() for _ in range(len(self._on_the_way))]

    def _send(self, at: float) -> None:
        """Mostly a few seconds on the way; one in fifty for minutes, some of these for hours."""
        delay = self._chance.expovariate(1 / 15)
        if self._chance.random() < 0.02:
            delay += min(60 * self._chance.paretovariate(0.6), 4 * 3600)
        record = f"s{self._made:08}"
        self._made += 1
        user = f"u{int(USERS * self._chance.random() ** 2):04}"
        time = (self._first + timedelta(seconds=at)).isoformat(timespec="milliseconds")
        line = json.dumps({"event_id": record, "user": user, "at": time, "action": "view"}, separators=(",", ":"))
        heapq.heappush(self._on_the_way, (at + delay, record, line))

    def _deliver(self) -> str:
        _, record, line = heapq.heappop(self._on_the_way)
        self.ids.append(record)
        if len(self._memory) < MEMORY:
            self._memory.append(line)
        elif self._chance.random() < 0.1:
            self._memory[self._chance.randrange(MEMORY)] = line
        return line


class Producer(threading.Thread):
    """Puts a file each second into the inbox until its seconds are over; what it was late with comes at once."""

    def __init__(self, platform: Platform, seed: int, seconds: int) -> None:
        super().__init__(name="producer", daemon=True)
        # Event times lead the clock, so that no pause of the drivers can look like a silence of the source.
        self.first = datetime.now(UTC).replace(second=0, microsecond=0)
        self._platform, self._seconds = platform, seconds
        self._source = Source(seed, self.first)
        self._over = threading.Event()
        self.lines = 0

    def run(self) -> None:
        """Deliver."""
        began = time.monotonic()
        for second in range(self._seconds):
            if self._over.wait(max(0, began + second - time.monotonic())):
                return
            self._put(second, self._source.file(second))
        self._put(self._seconds, self._source.rest())

    def stop(self) -> None:
        """No more files; for a test that has failed."""
        self._over.set()

    @property
    def delivered(self) -> Counter[str]:
        """Each record id once; complete when the thread has ended."""
        return Counter(self._source.ids)

    def _put(self, number: int, lines: list[str]) -> Path:
        self.lines += len(lines)
        return self._platform.put(PIPELINE, f"second-{number:06}.jsonl", lines)
