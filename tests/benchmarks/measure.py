"""How the benchmarks measure, and where they write what they have found."""

from __future__ import annotations

import json
import os
import platform as machine
import statistics
from collections import defaultdict
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyspark
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support.platform import Server

RESULTS = Path(__file__).parent / "results"
START = DataStreamWriter.start


class Clock:
    """How long each batch of each query took, as Spark counts it: from the look for input to the end of the commit.

    The same clock for every way, by the query's name. Batches without input are left out. It asks the queries when they
    have ended: a listener in Python would be called between the batches, and cost each of them a part of a second.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.parts: dict[str, list[dict[str, int]]] = defaultdict(list)
        self._started: list[StreamingQuery] = []

    def start(self, writer: DataStreamWriter, *given: Any, **named: Any) -> StreamingQuery:
        """In the place of the writer's own `start`."""
        query = START(writer, *given, **named)
        self._started.append(query)
        return query

    def settle(self) -> None:
        """Count what has ended since the last time."""
        for query in self._started:
            query.awaitTermination()
            for progress in query.recentProgress:
                if progress.numInputRows or _went_on(progress):
                    self.seconds[progress.name].append(progress.durationMs["triggerExecution"] / 1000)
                    self.parts[progress.name].append(dict(progress.durationMs))
        self._started.clear()


def _went_on(progress: Any) -> bool:
    """Whether a batch had input that its function did not read as rows."""
    return any(source.startOffset != source.endOffset for source in progress.sources)


def cpu_seconds(server: Server) -> float:
    """The processor time that this process, its JVM and Python workers, and the test's PostgreSQL have used so far.

    Beside other work the time by the clock says little; this says what a way costs.
    """
    return sum(cpu_by_process(server).values())


def cpu_by_process(server: Server) -> dict[str, float]:
    """The same, by what uses it: the driver in Python, its JVM, Python workers, PostgreSQL."""
    postmaster = int((server.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    used = dict.fromkeys(("driver", "jvm", "workers", "postgres"), 0.0)
    for pid in (os.getpid(), postmaster):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                used[_kind(process, pid, postmaster)] += sum(
                    process.cpu_times()[:4]
                )  # with those of its children that have ended
    return used


def _kind(process: psutil.Process, root: int, postmaster: int) -> str:
    if root == postmaster:
        return "postgres"
    if process.pid == root:
        return "driver"
    return "jvm" if process.name() == "java" else "workers"


def keep(name: str, **found: Any) -> None:
    """Put what was found into results/<name>.json, beside what other benchmarks have put there."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    there = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(there | found, indent=1, sort_keys=True) + "\n")


def kept(name: str, **circumstances: Any) -> dict[str, Any]:
    """What results/<name>.json has, if it was found under these circumstances."""
    path = RESULTS / f"{name}.json"
    there: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return there if circumstances.items() <= there.items() else {}


def circumstances() -> dict[str, Any]:
    """The machine, how busy it was, and the versions."""
    return {
        "machine": {
            "cores": os.cpu_count(), "memory_gb": round(psutil.virtual_memory().total / 2**30), "kind": machine.machine(),
            "load": [round(n, 1) for n in os.getloadavg()],
        },
        "versions": {
            "python": machine.python_version(), "spark": pyspark.__version__, "delta": version("delta-spark"),
            "numpy": np.__version__, "pyarrow": pa.__version__,
        },
    }  # fmt: skip


def median(values: list[float]) -> float:
    """Of at least one."""
    return statistics.median(values)
