"""Start drivers of one pipeline at once, thousands of times, and compare each result with the oracle.

`python -m tests.fault.matrix.starts --starts 20000 --minutes 60 --result tests/fault/starts.json` adds to what the file has.

Half of the starts let the processes run freely. In the others each driver stops at its first pass of every fail-point, and a seeded
schedule wakes one at a time: it takes one driver to a point behind *begin batch*, then the next to a point of its own, then any.
A start counts only if at least two of its drivers reached *begin batch*.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from onlyonce.database.connect import forget_connections
from onlyonce.testing.crashtest import scratch
from tests.fault.matrix import declared
from tests.fault.matrix.world import Run, World
from tests.fault.matrix.zygote import Zygote
from tests.support.shared_server import SharedServer

GOOD = {0, 69, 75}
BEGIN = "receive-before-begin"
STEP = 0.03
"""Seconds that a woken driver gets before another one is woken: it may wait for a lock of one that is stopped."""
A_DATABASE = 300
"""So many starts share a database, so that its tables stay small."""


def play(world: World, points: list[str], seed: int) -> tuple[str, bool]:
    """Start two or three drivers at once by a seed. Return how, and if two of them reached *begin batch*."""
    chance = random.Random(seed)
    drivers, free = chance.choice((2, 2, 3)), chance.random() < 0.5
    run = world.receiving()
    records = [Path(run.play.home) / f"record-{n}" for n in range(drivers)]
    stops = "" if free else ",".join(f"{point}:1:stop" for point in points)
    pids = [run.start(stops, ONLYONCE_FAILPOINT_RECORD=str(record)) for record in records]
    if not free:
        _woken(chance, pids, records, points)
    codes = {run.world.zygote.wait(pid) for pid in pids}
    assert codes <= GOOD, f"seed {seed}: exit {codes}\n{run.told()}"
    run.finish()
    _compare(run, seed)
    begun = sum(BEGIN in record.read_text().split() for record in records if record.exists())
    return f"{drivers} drivers, {'free' if free else 'woken by a schedule'}", begun >= 2


def _compare(run: Run, seed: int) -> None:
    wrong = {name: (str(w - f), str(f - w)) for name, (w, f) in run.pairs().items() if w != f}
    assert not wrong, f"seed {seed}: {json.dumps(wrong, indent=1)}\n{run.told()}"


def _woken(chance: random.Random, pids: list[int], records: list[Path], points: list[str]) -> None:
    """Wake the drivers one at a time until each has ended."""
    behind = points[points.index(BEGIN) :]
    order = chance.sample(range(len(pids)), len(pids))
    for number in order[:-1]:
        _until(pids[number], records[number], chance.choice(behind))
    while living := [pid for pid in pids if _state(pid)]:
        stopped = [pid for pid in living if _state(pid) == "T"]
        if stopped:
            _wake(chance.choice(stopped))
        else:
            time.sleep(0.001)


def _until(pid: int, record: Path, point: str) -> None:
    waits = 0
    while _state(pid) and waits < 20:
        if _state(pid) != "T":
            waits += 1
            time.sleep(STEP)
            continue
        if record.exists() and point in record.read_text().split():
            return
        _wake(pid)


def _wake(pid: int) -> None:
    try:
        psutil.Process(pid).send_signal(signal.SIGCONT)
    except psutil.NoSuchProcess:
        return
    until = time.monotonic() + STEP
    while time.monotonic() < until and _state(pid) not in ("T", ""):
        time.sleep(0.0005)


def _state(pid: int) -> str:
    """Return the letter of a process's state; empty if it has ended."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if letter in "ZX" else letter


def _points(world: World) -> list[str]:
    """Return the fail-points that a driver passes, in their order."""
    run = world.receiving()
    record = Path(run.play.home) / "record"
    assert world.zygote.run(run.play, run.log, ONLYONCE_FAILPOINTS="", ONLYONCE_FAILPOINT_RECORD=str(record)) == 0, run.told()
    return list(dict.fromkeys(record.read_text().split()))


def main() -> None:
    """Play as many starts as are asked for, or as the minutes allow, and add them to the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20_000, help="starts that count, with those of before")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--files", type=int, default=declared.FILES, help="input files, each a batch")
    parser.add_argument("--beside", type=int, default=3, help="starts at once")
    parser.add_argument("--result", type=Path, required=True)
    given = parser.parse_args()
    declared.FILES = given.files
    result: dict[str, Any] = json.loads(given.result.read_text()) if given.result.exists() else {}
    counts = Counter(result.get("starts", {}))
    seed, end = result.get("next_seed", 0), time.monotonic() + 60 * given.minutes
    os.environ["ONLYONCE_HOME"] = tempfile.mkdtemp(prefix="starts-home-")
    with Zygote() as zygote, scratch.server("onlyonce-starts-") as made, ThreadPoolExecutor(given.beside) as pool:
        server = SharedServer(made.folder)
        server.hurry()
        while counts["counted"] < given.starts and time.monotonic() < end:
            name = server.new_migrated()
            with tempfile.TemporaryDirectory(prefix="starts-") as folder:
                world = World(server.url("writer", name), Path(folder), zygote)
                points = _points(world)
                for how, both in pool.map(partial(play, world, points), range(seed, seed + A_DATABASE)):
                    counts[how] += 1
                    counts["counted"] += both
                    counts["all"] += 1
                world.session.close()
            forget_connections()
            server.drop(name)
            seed += A_DATABASE
            given.result.write_text(json.dumps({"starts": dict(sorted(counts.items())), "next_seed": seed}, indent=1) + "\n")
            print(f"{counts['counted']:,} of {given.starts:,} starts, none doubled or lost a record", flush=True)


if __name__ == "__main__":
    main()
