"""Start drivers of one pipeline at once, thousands of times, and compare each result with the oracle.

`python -m tests.fault.matrix.starts --starts 20000 --minutes 60 --result tests/fault/starts.json` adds to what the file
has.

Half of the starts let the processes run freely. In the others each driver stops at its first pass of every fail-point,
and a seeded schedule wakes one at a time: it takes one driver to a point behind *begin batch*, then the next to a point
of its own, then any. The two points of the last two drivers so taken are a pair; all pairs have their turn. A start
counts only if at least two of its drivers reached *begin batch*.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from onlyonce.testing import scratch
from tests.fault.matrix import declared
from tests.fault.matrix.bench import Bench
from tests.fault.matrix.play import Play
from tests.fault.matrix.world import Run, World
from tests.support.shared_server import SharedServer

GOOD = {0, 69, 75}
BEGIN = "receive-before-begin"
NONE = {"doubled or lost": 0, "ended otherwise": 0}
STEP = 0.03
"""Seconds that a woken driver gets before another one is woken: it may wait for a lock of one that is stopped."""
PATIENT_STEPS = 10
"""So many steps a driver gets from each point to the next on its way to its point of a pair."""
A_BENCH = 60
"""So many starts share a database and its processes, so that its tables stay small."""


def play(world: World, bench: Bench, points: list[str], seed: int) -> tuple[Counter[str], str]:
    """Start two or three drivers at once by a seed. Return what to count, and what is wrong with the result."""
    chance = random.Random(seed)
    drivers, free = chance.choice((2, 2, 3)), chance.random() < 0.5
    run = _run(world, seed)
    records = [Path(run.play.home) / f"record{run.play.suffix}-{n}" for n in range(drivers)]
    stops = "" if free else ",".join(f"{point}:1:stop" for point in points)
    pids = [run.start(stops, ONLYONCE_FAILPOINT_RECORD=str(record)) for record in records]
    counts = Counter({"all": 1, f"{drivers} drivers, {'free' if free else 'woken by a schedule'}": 1})
    if not free and (pair := _woken(bench, chance, dict(zip(pids, records, strict=True)), points, seed)):
        counts[f"pair {pair}"] += 1
    codes = {bench.wait(pid) for pid in pids}
    if 0 not in codes:
        codes.add(run.run())
    begun = sum(BEGIN in _passed(record) for record in records)
    counts["counted"] += begun >= 2
    wrong = {name: (str(w - f), str(f - w)) for name, (w, f) in run.pairs().items() if w != f}
    counts["doubled or lost"] += bool(wrong)
    counts["ended otherwise"] += not codes <= GOOD
    problem = (
        ""
        if not wrong and codes <= GOOD
        else f"seed {seed}: exits {codes}, {json.dumps(wrong, indent=1)}\n{run.told()}"
    )
    return counts, problem


def _run(world: World, number: int | str) -> Run:
    """Make a run of receive with a pipeline of its own, in the one home of a bench."""
    play = Play(f"start{number}", str(world.folder), world.url, suffix=f"-{number}")
    declared.put(world.folder / "inbox" / play.name)
    return Run(world, play)


def _woken(bench: Bench, chance: random.Random, records: dict[int, Path], points: list[str], seed: int) -> str:
    """Wake the drivers one at a time until each has ended. Return the pair of points at which the last two stood."""
    behind = points[points.index(BEGIN) :]
    pair = list(itertools.product(behind, behind))[seed % len(behind) ** 2]
    order = chance.sample(list(records), len(records))
    for pid in order[:-2]:
        _until(bench, pid, records[pid], chance.choice(behind))
    stood = [_until(bench, pid, records[pid], point) for pid, point in zip(order[-2:], pair, strict=True)]
    while living := [pid for pid in records if bench.plays(pid)]:
        stopped = [pid for pid in living if bench.stopped(pid)]
        if stopped:
            _wake(bench, chance.choice(stopped))
        else:
            bench.happens(STEP)
    return " × ".join(pair) if all(stood) else ""


def _until(bench: Bench, pid: int, record: Path, point: str) -> bool:
    """Take a driver to a point. Return False if it ends before, or waits for another driver."""
    while bench.plays(pid):
        if not bench.stopped(pid):
            if not bench.happens(PATIENT_STEPS * STEP):
                return False
        elif point in _passed(record):
            return True
        else:
            bench.wake(pid)
    return False


def _wake(bench: Bench, pid: int) -> None:
    bench.wake(pid)
    until = time.monotonic() + STEP
    while bench.plays(pid) and not bench.stopped(pid) and (left := until - time.monotonic()) > 0:
        bench.happens(left)


def _passed(record: Path) -> list[str]:
    return record.read_text().split() if record.exists() else []


def _points(world: World, bench: Bench) -> list[str]:
    """Return the fail-points that a driver passes, in their order."""
    run = _run(world, "s")
    record = world.folder / "record"
    assert bench.wait(run.start(ONLYONCE_FAILPOINT_RECORD=str(record))) == 0, run.told()
    return list(dict.fromkeys(_passed(record)))


def _bench(server: SharedServer, end: float, seeds: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """Play the starts of these seeds in a database of their own, as many as time allows."""
    counts: Counter[str] = Counter()
    problems = []
    with Bench(3) as bench, tempfile.TemporaryDirectory(prefix="starts-") as folder:
        name = server.new_migrated()
        world = World(server.url("writer", name), Path(folder), bench)  # type: ignore[arg-type]
        points = _points(world, bench)
        for seed in seeds:
            if time.monotonic() < end:
                more, problem = play(world, bench, points, seed)
                counts += more
                problems += [problem] * bool(problem)
        world.session.close()
    server.drop(name)
    return counts, problems


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
    counts, pairs = Counter(result.get("starts", {})), Counter(result.get("pairs", {}))
    seed, end = result.get("next_seed", 0), time.monotonic() + 60 * given.minutes
    if Path("/dev/shm").is_dir():
        tempfile.tempdir = "/dev/shm"
    os.environ["TOKIO_WORKER_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["ONLYONCE_HOME"] = tempfile.mkdtemp(prefix="starts-home-")
    fork = multiprocessing.get_context("fork")
    with scratch.server("onlyonce-starts-") as made:
        server = SharedServer(made.folder)
        server.hurry()
        server.drop(server.new_migrated())  # migrates the database of which the others are copies
        with fork.Pool(given.beside, maxtasksperchild=1) as pool:
            while counts["counted"] < given.starts and time.monotonic() < end:
                seeds = [range(seed + n * A_BENCH, seed + (n + 1) * A_BENCH) for n in range(given.beside)]
                for more, problems in pool.imap_unordered(partial(_bench, server, end), seeds):
                    pairs += Counter(
                        {name.removeprefix("pair "): n for name, n in more.items() if name.startswith("pair ")}
                    )
                    counts += Counter({name: n for name, n in more.items() if not name.startswith("pair ")})
                    print(*problems, sep="\n", flush=True)
                seed += A_BENCH * given.beside
                kept = {
                    "starts": NONE | dict(sorted(counts.items())),
                    "next_seed": seed,
                    "pairs": dict(sorted(pairs.items())),
                }
                given.result.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
                print(
                    f"{counts['counted']:,} of {given.starts:,} starts, {counts['doubled or lost']} doubled or "
                    f"lost a record; {len(pairs)} pairs",
                    flush=True,
                )
    shutil.rmtree(os.environ["ONLYONCE_HOME"])
    if counts["doubled or lost"] or counts["ended otherwise"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
