"""A soak: drivers one after another, and a random fault every few seconds, as long as it is told to.

Faults that end a driver wait until something was committed since the last of them, most of the time: else a busy
machine would see starts and kills and nothing between.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import psutil
import psycopg2
from rich.console import Console
from rich.table import Table

from onlyonce.local import postgres
from tests.contract.database.test_server_deaths import kill as kill_server
from tests.support.platform import ROOT, Platform, Server
from tests.support.proxy import ANSWER_LOST, COMMIT_LOST, Proxy
from tests.support.soak_driver import Driver

SUPERSEDED, AWAY = 69, 75
GENTLE = {
    "Python worker killed": 4, "database session ended": 4, "connections cut": 2, "answer to a COMMIT lost": 3,
    "COMMIT lost": 3, "network stands still": 1, "driver stopped for a while": 2, "collection beside it": 1,
}  # fmt: skip
ENDING = {"driver killed": 3, "zombie beside a new driver": 3, "second driver at once": 2, "PostgreSQL killed": 1}
MOST_DRIVERS = 3
AMBUSH = 20.0
"""How long a fault waits for something to strike, say for a Python worker, before another one is chosen."""

IMPATIENCE = 0.1
"""How often a fault that ends a driver does not wait for a commit."""


@dataclass
class Soak:
    """What incarnations, what was struck, and what is to be undone later."""

    platform: Platform
    server: Server
    proxy: Proxy
    chance: random.Random
    drivers: list[Driver] = field(default_factory=list)
    ended: list[Driver] = field(default_factory=list)
    collections: list[subprocess.Popen[str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _committed: int = -1

    def run(self, seconds: float) -> None:
        """Keep a driver at work and strike, for so long. Raises AssertionError for a driver that ended wrongly."""
        now = time.monotonic()
        end, next_at, kind = now + seconds, now + 5, ""
        while (now := time.monotonic()) < end:
            self._supervise()
            if now >= next_at:
                kind = kind or self._choose()
                if self._strike(kind) or now >= next_at + AMBUSH:
                    next_at, kind = time.monotonic() + self.chance.uniform(2, 8), ""
            time.sleep(0.2)

    def settle(self) -> None:
        """Undo what is under way, wait until every driver has ended by itself."""
        for _, undo in self._later:
            undo()
        self._later = []
        for driver in self.drivers:
            driver.wait()
        for collection in self.collections:
            collection.wait(600)
        self._supervise(restart=False)
        assert {c.returncode for c in self.collections} <= {0, AWAY}, [c.returncode for c in self.collections]

    def kill_all(self) -> None:
        """Nothing remains; for a test that has failed."""
        for driver in self.drivers:
            driver.kill()

    def faulted(self) -> list[str]:
        """For each driver that was struck, what struck it last."""
        return [driver.struck[-1] for driver in self.ended if driver.struck]

    def told(self) -> str:
        """The table of the faults and of the drivers' ends."""
        table = Table("fault", "times", title="soak")
        for fault in (*GENTLE, *ENDING):
            table.add_row(fault, str(self.faults[fault]))
        table.add_row("(COMMITs or answers that were lost by it)", str(self.proxy.cuts))
        table.add_section()
        for code, times in sorted(Counter(driver.code for driver in self.ended).items(), key=str):
            table.add_row(f"drivers that ended with {code}", str(times))
        console = Console(width=100)
        with console.capture() as captured:
            console.print(table)
        return captured.get()

    def _supervise(self, restart: bool = True) -> None:
        now = time.monotonic()
        for at, undo in [one for one in self._later if one[0] <= now]:
            self._later.remove((at, undo))
            undo()
        for driver in [d for d in self.drivers if d.code is not None]:
            self.drivers.remove(driver)
            self.ended.append(driver)
            code = driver.code or 0
            assert code <= 0 or code in (SUPERSEDED, AWAY), f"exit {code} after {driver.struck}:\n{driver.output}"
        if restart and not [d for d in self.drivers if not d.is_replaced]:
            self._start()

    def _start(self) -> None:
        through = self.platform.environment | {"ONLYONCE_DATABASE_URL": self.proxy.url}
        self.drivers.append(Driver(replace(self.platform, environment=through)))

    def _choose(self) -> str:
        kinds = GENTLE | (ENDING if self._may_end() else {})
        return self.chance.choices([*kinds], [*kinds.values()])[0]

    def _strike(self, kind: str) -> bool:
        """Whether there was something to strike."""
        awake = [driver for driver in self.drivers if not driver.is_stopped]
        driver = self.chance.choice(awake) if awake else None
        if driver is None or not FAULTS[kind](self, driver):
            return False
        self.faults[kind] += 1
        driver.struck.append(kind)
        if kind in ENDING:
            self._committed = self._commits()
        return True

    def _may_end(self) -> bool:
        return self._commits() > self._committed or self.chance.random() < IMPATIENCE

    def _commits(self) -> int:
        try:
            found = self.platform.sql("SELECT count(*) AS n FROM onlyonce.batches WHERE state = 'committed'")
        except psycopg2.Error:  # before the first driver has made the views
            return 0
        return int(found["n"][0])

    def after(self, seconds: float, undo: Callable[[], None]) -> None:
        """Undo a fault so many seconds from now."""
        self._later.append((time.monotonic() + seconds, undo))

    # --- the faults: each tells whether there was something to strike ------------------------------------------------

    def kill_worker(self, driver: Driver) -> bool:
        """One Python worker of a task."""
        workers = driver.workers()
        if not workers:
            return False
        try:
            self.chance.choice(workers).kill()
        except psutil.Error:
            return False
        return True

    def end_session(self, _: Driver) -> bool:
        """One session of any driver."""
        ended = self.platform.sql(
            "SELECT pg_terminate_backend(pid) AS ok FROM pg_stat_activity WHERE application_name LIKE 'onlyonce%' "
            "AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
        )
        return bool(len(ended) and ended["ok"][0])

    def cut_connections(self, _: Driver) -> bool:
        """All at once, and new ones for a moment."""
        self.proxy.refuse()
        self.after(self.chance.uniform(0.1, 3), self.proxy.allow)
        return True

    def lose(self, how: str) -> bool:
        """The next COMMIT, or the answer to it."""
        self.proxy.cut_next(how)
        return True

    def stand_still(self, _: Driver) -> bool:
        """No byte passes for some seconds."""
        self.proxy.freeze()
        self.after(self.chance.uniform(1, 10), self.proxy.thaw)
        return True

    def pause(self, driver: Driver) -> bool:
        """The driver is stopped for some seconds; nobody starts another."""
        driver.stop()
        self.after(self.chance.uniform(1, 8), driver.wake)
        return True

    def collect(self, _: Driver) -> bool:
        """`onlyonce gc`, through the same network."""
        command = [sys.executable, "-m", "onlyonce.operate.gc"]
        environment = os.environ | self.platform.environment | {"ONLYONCE_DATABASE_URL": self.proxy.url}
        self.collections.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        return True

    def kill_driver(self, driver: Driver) -> bool:
        """The whole session."""
        driver.kill()
        return True

    def make_zombie(self, driver: Driver) -> bool:
        """It is stopped, a new one is started, and some time later it wakes."""
        if len(self.drivers) >= MOST_DRIVERS:
            return False
        driver.stop()
        driver.is_replaced = True
        self._start()
        self.after(self.chance.uniform(5, 60), driver.wake)
        return True

    def start_second(self, _: Driver) -> bool:
        """Another one while this one works."""
        if len(self.drivers) >= MOST_DRIVERS:
            return False
        self._start()
        return True

    def kill_postgres(self, _: Driver) -> bool:
        """The postmaster; then the server is started again."""
        kill_server(self.server)
        postgres.start()
        return True


FAULTS: dict[str, Callable[[Soak, Driver], bool]] = {
    "Python worker killed": Soak.kill_worker,
    "database session ended": Soak.end_session,
    "connections cut": Soak.cut_connections,
    "answer to a COMMIT lost": lambda soak, _: soak.lose(ANSWER_LOST),
    "COMMIT lost": lambda soak, _: soak.lose(COMMIT_LOST),
    "network stands still": Soak.stand_still,
    "driver stopped for a while": Soak.pause,
    "collection beside it": Soak.collect,
    "driver killed": Soak.kill_driver,
    "zombie beside a new driver": Soak.make_zombie,
    "second driver at once": Soak.start_second,
    "PostgreSQL killed": Soak.kill_postgres,
}
