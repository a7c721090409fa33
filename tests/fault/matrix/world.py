"""A place for faulted runs, and the oracle: plain Python over the input files, compared as multisets."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
import psycopg2
from deltalake import DeltaTable

from onlyonce.local.processes import wait_until
from tests.fault import ledger
from tests.fault.matrix import declared
from tests.fault.matrix.declared import Row
from tests.fault.matrix.play import Play
from tests.fault.matrix.zygote import Zygote

Case = TypeVar("Case")
Pairs = dict[str, tuple[Counter[Any], Counter[Any]]]
PATIENCE = 120.0
AT_ONCE = 3
"""So many runs are under way at once: each waits for the disk and the server most of its time."""
AGAIN = {-signal.SIGKILL, 69, 75}
"""The exits after which the same command runs again: killed, superseded, retryable."""


@dataclass
class World:
    """One database and a folder; each run in it is a pipeline, or an output, of its own."""

    url: str
    folder: Path
    zygote: Zygote
    session: Any = field(init=False)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _receiving: Any = field(default_factory=threading.Lock)
    _received: Run | None = None

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        """Open the session of the oracle, again when the server has been away."""
        self.session = psycopg2.connect(self.url.replace("+psycopg2", ""))
        self.session.autocommit = True

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with self.session.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def each(self, cases: Iterable[Case], play: Callable[[Case], None]) -> int:
        """Play all cases, a few at once; the first that fails is raised when all are through. Gives their number."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            played = [pool.submit(play, case) for case in cases]
        for one in played:
            one.result()
        return len(played)

    def receiving(self, *kinds: str, workers: bool = False) -> Run:
        """A pipeline of its own, with its input; outputs of these kinds follow."""
        name = f"grid{next(self._numbers)}"
        home = self.folder / name
        declared.put(home / "inbox" / name)
        return Run(self, Play(name, str(home), self.url, kinds, workers=workers))

    def writing(self, kind: str, *, workers: bool = False) -> Run:
        """An output of its own over what one pipeline of this world has received, when it is first needed."""
        with self._receiving:
            if self._received is None:
                received = self.receiving()
                received.finish()
                self._received = received
        play = replace(
            self._received.play, kinds=(kind,), suffix=f"_{next(self._numbers)}", receive=False, workers=workers
        )
        return Run(self, play)

    def new(self, kind: str, *, workers: bool = False) -> Run:
        """A run of receive, or of one kind of output."""
        return self.receiving(workers=workers) if kind == "receive" else self.writing(kind, workers=workers)


@dataclass
class Run:
    """One command, run until it ends well, through faults; then held against the oracle."""

    world: World
    play: Play
    starts: int = 0

    def start(self, points: str = "", *, url: str = "", **environment: str) -> int:
        """Start it in a process that a fault strikes at these points; gives the process id."""
        self.starts += 1
        folder = Path(self.play.home) / f"points{self.play.suffix}-{self.starts}"
        folder.mkdir(parents=True)
        play = replace(self.play, url=url or self.play.url)
        given = {"ONLYONCE_FAILPOINTS": points, "ONLYONCE_FAILPOINT_DIR": str(folder), "ONLYONCE_FAILPOINT_RECORD": ""}
        given |= environment
        return self.world.zygote.start(play, self.log, **given)

    def run(self, points: str = "", *, url: str = "") -> int:
        """The same to its end; gives the exit code."""
        return self.world.zygote.wait(self.start(points, url=url))

    def finish(self) -> None:
        """The same command again without faults, to its good end."""
        code = self.run()
        assert code == 0, f"exit {code}\n{self.told()}"

    def start_stopped(self, point: str, *, url: str = "", **environment: str) -> psutil.Process:
        """Start it; gives the process when it has stopped at the first pass of a point."""
        process = psutil.Process(self.start(f"{point}:1:stop", url=url, **environment))
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, PATIENCE, f"{point} in {self.log}")
        return process

    def end_of(self, process: psutil.Process) -> int:
        """Its exit code."""
        return self.world.zygote.wait(process.pid)

    def held(self, suite: str, point: str, occurrence: object = 1, *, seed: int | None = None) -> None:
        """Hold what is there against the oracle: note it in the ledger, and fail with what differs."""
        pairs = self.pairs()
        sums = ledger.compared(suite, point, occurrence, pairs.values(), seed=seed)
        assert sums == (0, 0), f"{suite} {point} {occurrence}: lost, doubled = {sums}: {as_text(pairs)}\n{self.told()}"

    def passes(self) -> dict[str, int]:
        """How often each point is passed in a run without faults."""
        record = Path(self.play.home) / f"record{self.play.suffix}"
        record.parent.mkdir(parents=True, exist_ok=True)
        given = {"ONLYONCE_FAILPOINTS": "", "ONLYONCE_FAILPOINT_RECORD": str(record)}
        assert self.world.zygote.run(self.play, self.log, **given) == 0, self.told()
        return dict(sorted(Counter(record.read_text().split()).items()))

    def struck(self, point: str) -> int:
        """How often a point was passed in the last run that had one."""
        passes = Path(self.play.home) / f"points{self.play.suffix}-{self.starts}" / point
        return passes.stat().st_size if passes.exists() else 0

    @property
    def log(self) -> Path:
        """What its processes have printed."""
        return Path(self.play.home) / f"told{self.play.suffix}.log"

    def told(self) -> str:
        """The end of it."""
        return self.log.read_text()[-3000:]

    def pairs(self) -> Pairs:
        """(wanted, found) of all that the run has to do with."""
        found = self._received() if self.play.receive else {}
        for kind in self.play.kinds:
            found[kind] = _wanted(kind), self._found(kind)
            if kind == "staged":
                found["as staged"] = self._staged()
        return found | self._log()

    def _received(self) -> Pairs:
        table = DeltaTable(str(Path(self.play.home) / "data" / self.play.name / "events")).to_pyarrow_table()
        rows = table.to_pylist()
        kept = Counter(_as_kept(row) for row in rows if row["oo_kind"] == "kept")
        invalid = Counter(row["oo_raw"] for row in rows if row["oo_kind"] == "invalid")
        control = Counter((row["oo_batch"], row["oo_partition"]) for row in rows if row["oo_kind"] == "control")
        batches = [*itertools.product(range(declared.FILES), range(declared.PARTITIONS))]
        chunks = self.world.rows("SELECT ids FROM onlyonce_private.catalog_chunks WHERE instance = %s", self.play.name)
        ids = Counter(bytes(ids)[at : at + 16] for (ids,) in chunks for at in range(0, len(ids), 16))
        in_events = Counter(
            row["oo_high"].to_bytes(8, "big", signed=True) + row["oo_low"].to_bytes(8, "big", signed=True)
            for row in rows
            if row["oo_kind"] == "kept"
        )
        return {
            "kept": (Counter(_as_kept(row) for file in _kept() for row in file), kept), "ids": (in_events, ids),
            "invalid": (Counter(line for file in declared.files() for line in file if isinstance(line, str)), invalid),
            "control": (Counter([*batches, (-1, None)]), control),
        }  # fmt: skip

    def _found(self, kind: str) -> Counter[Any]:
        names = declared.KINDS[kind][1].names
        if kind == "filed":
            path = Path(self.play.home) / "tables" / self.play.name / f"filed{self.play.suffix}"
            return Counter(tuple(row[n] for n in names) for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist())
        names = ["id"] if kind == "staged" else names
        table = declared.table(self.play.name, kind, self.play.suffix)
        return Counter(self.world.rows(f"SELECT {', '.join(names)} FROM {table}"))

    def _staged(self) -> tuple[Counter[Any], Counter[Any]]:
        """What was stored before any unit is what was written, value by value."""
        [path] = (
            Path(self.play.home) / "data" / self.play.name / "staged" / f"staged{self.play.suffix}"
        ).iterdir()  # of one declaration
        stored = Counter((row["id"], row["chance"]) for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist())
        table = declared.table(self.play.name, "staged", self.play.suffix)
        return stored, Counter(self.world.rows(f"SELECT id, chance FROM {table}"))

    def _log(self) -> Pairs:
        """Every batch, unit and close is in the log once and committed, and adds up."""
        queries = [f"{kind}{self.play.suffix}" for kind in self.play.kinds] + ["receive"] * self.play.receive
        name, known = self.play.name, [f"{self.play.name}/{query}/1" for query in queries]
        output_batches = range(-(-(declared.FILES + 2) // 2))  # versions: made, one a file, the close; two a batch
        numbers = {q: range(declared.FILES) if q == "receive" else output_batches for q in queries}
        batches = Counter((f"{name}/{q}/1", n, "committed", True) for q in queries for n in numbers[q])
        units: Counter[Any] = Counter()
        for query in queries:
            sink = "events" if query == "receive" else query
            partitions = 1 if query.startswith("filed") else declared.PARTITIONS
            for number, partition in itertools.product(numbers[query], range(partitions)):
                units[f"{name}/{query}/1/{number}/{sink}/{partition}"] += 1
        rows = self.world.rows
        in_log = rows(
            "SELECT incarnation, batch_id, state, conserved FROM onlyonce_private.batches WHERE incarnation = ANY(%s)",
            known,
        )
        there = rows("SELECT unique_id FROM onlyonce_private.units WHERE incarnation = ANY(%s)", known)
        pairs: Pairs = {"batches": (batches, Counter(in_log)), "units": (units, Counter(unit for (unit,) in there))}
        if self.play.receive:
            closes = rows(
                "SELECT marker_no, state FROM onlyonce_private.watermark_markers WHERE incarnation = ANY(%s)", known
            )
            pairs["closes"] = Counter([(1, "committed")]), Counter(closes)
        return pairs


def _kept() -> list[list[Row]]:
    """The records of each file that are new: of twins the earliest in event time, of deliveries the first."""
    seen: set[str] = set()
    kept = []
    for lines in declared.files():
        records = sorted((line for line in lines if not isinstance(line, str)), key=lambda row: row["at"])
        new = [row for n, row in enumerate(records) if row["id"] not in seen and row["id"] not in _ids(records[:n])]
        seen |= _ids(new)
        kept.append(new)
    return kept


def _ids(records: list[Row]) -> set[str]:
    return {row["id"] for row in records}


def _as_kept(row: Row) -> tuple[Any, ...]:
    return row["id"], row["shop"], row["cents"]


def _wanted(kind: str) -> Counter[Any]:
    """What an output must hold, by its own arithmetic over the new records; batches of `VERSIONS_A_BATCH` versions."""
    files = _kept()
    # Version 0 is the empty table; so the first batch has the first file, the second all others and the close.
    batches = [files[:1], files[1:]]
    if kind in ("appended", "filed"):
        return Counter(_as_kept(row) for file in files for row in file)
    if kind == "staged":
        return Counter((row["id"],) for file in files for row in file)
    sums = [Counter[str]() for _ in batches]
    for total, batch in zip(sums, batches, strict=True):
        for row in itertools.chain(*batch):
            total[row["shop"]] += row["cents"]
    if kind == "added":
        return Counter((sums[0] + sums[1]).items())
    return Counter((dict(sums[0]) | dict(sums[1])).items())


def as_text(pairs: Pairs) -> str:
    """What differs, for the message of a failing test."""
    different = {name: [str(w - f), str(f - w)] for name, (w, f) in pairs.items() if w != f}
    return json.dumps(different, indent=1)
