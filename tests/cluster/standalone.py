"""A real standalone Spark cluster on the loopback address, by the commands of docker-compose.yml as plain processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from onlyonce import environment
from onlyonce.local import health, processes
from tests.compose import composed
from tests.support.platform import ROOT, free_port

PATIENCE = 240
# As docker/Dockerfile has it: by this Python Spark's scripts find Spark.
OF_THE_IMAGE = {"PYSPARK_PYTHON": sys.executable}


@dataclass
class Cluster:
    """A master and what it says of itself; workers are started one by one."""

    folder: Path
    port: int = field(default_factory=free_port)
    ui: int = field(default_factory=free_port)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    masters: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The URL that a driver is given."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def settings(self) -> str:
        """The settings that docker-compose.yml mounts, with the secret: those of a driver go after them."""
        return (self.folder / "spark-defaults.conf").read_text()

    def says(self) -> dict[str, Any]:
        """The master's own word on workers and runs."""
        return health.answer(f"http://127.0.0.1:{self.ui}/json/")

    def start(self, service: str, ui: int, **variables: str) -> subprocess.Popen[bytes]:
        """Start a service by its command in docker-compose.yml, here instead of there; return when it is healthy."""
        command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][service]["command"]
        program, name, *rest = [str(part) for part in command]
        there = {"spark-master": "127.0.0.1", "spark://spark-master:7077": self.master, "7077": str(self.port)}
        there |= {"8080": str(ui), "8081": str(ui), "/tmp/spark": str(self.folder / "work")}
        log = (self.folder / f"{service}-{ui}.log").open("wb")
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name(program)), name, *(there.get(part, part) for part in rest)],
            env={**os.environ, **OF_THE_IMAGE, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
            cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        log.close()
        self.started.append(process)
        processes.wait_until(lambda: self._is_well(service, ui) or process.poll() is not None, PATIENCE, log.name)
        assert process.poll() is None, processes.last_line(Path(log.name))
        return process

    def start_master(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the master, also after `kill_master`, at the same port."""
        given = ("-Dspark.deploy.defaultCores=2", "-Dspark.master.rest.enabled=false", *options)
        self.masters.append(self.start("spark-master", self.ui, SPARK_MASTER_OPTS=" ".join(given)))
        return self.masters[-1]

    def kill_master(self) -> None:
        """Kill the running master (SIGKILL)."""
        self.masters[-1].kill()
        self.masters[-1].wait(60)

    def stop(self) -> None:
        """End what was started, workers first."""
        for process in reversed(self.started):
            process.terminate()
            process.wait(60)

    def _is_well(self, service: str, ui: int) -> bool:
        with suppress(OSError, ValueError):  # a page before its JSON is there
            return health.CHECKS[service][1](health.answer(f"http://127.0.0.1:{ui}/json/"))
        return False


@contextmanager
def cluster(folder: Path, workers: int = 1, options: Sequence[str] = ()) -> Iterator[Cluster]:
    """Run a master, with more options if given, and healthy workers.

    Inside, drivers too find the settings and the secret that docker-compose.yml mounts.
    """
    made = Cluster(folder)
    (folder / "spark-defaults.conf").write_text(composed.filled(composed.load()["configs"]["spark"]["content"]))
    with environment.within({"SPARK_CONF_DIR": str(folder)}):
        try:
            made.start_master(*options)
            for _ in range(workers):
                made.start("spark-worker", free_port(), SPARK_WORKER_CORES="2", SPARK_WORKER_MEMORY="1g")
            yield made
        finally:
            made.stop()
