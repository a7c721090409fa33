"""Machines that share no disk: each process runs in a mount namespace of its own.

What is on the disk is an image, which nobody can write to: the system, Python, Spark and this checkout. A machine's
temporary, home and state folders are its own, in memory, and gone with it. What several of them must see, they see over
TCP: PostgreSQL and S3. Needs root on Linux.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from onlyonce.environment import inherited
from onlyonce.local import health, processes
from tests.cluster.stopped import stopped
from tests.support.platform import ROOT, Platform, free_port

PATIENCE = 1200
HOME = "/tmp/machine"
OWN = ("/tmp", "/var/tmp", "/run", "/dev/shm")
BOOT = """
[ -z "$SHOWN" ] || mount --bind "$SHOWN" /mnt
mount -o remount,bind,ro /
for folder in $OWN; do [ ! -d $folder ] || mount -t tmpfs machine $folder; done
[ -z "$SHOWN" ] || { mkdir -p "$SHOWN"; mount --bind /mnt "$SHOWN"; }
mkdir $HOME
cd $HOME
exec "$@"
"""


def needed() -> None:
    """Skip where no machine can be made."""
    can = (
        shutil.which("unshare")
        and subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0
    )
    if not can:
        pytest.skip("a mount namespace of its own needs root on Linux")


def command(*arguments: str, shown: Path | None = None) -> tuple[list[str], dict[str, str]]:
    """What starts a command on a machine of its own, and the variables that belong to it.

    `shown`: a folder of the test that the machine sees too.
    """
    boot = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", BOOT, "machine", *arguments]
    return boot, {
        "HOME": HOME,
        "OWN": " ".join(OWN),
        "SHOWN": str(shown or ""),
        "TMPDIR": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@dataclass
class Machines:
    """A master, workers and drivers, each on a machine of its own.

    `folder`: where the test reads what they have printed; `store`: the variables that lead to the store, as a machine's
    role would."""

    folder: Path
    store: Mapping[str, str]
    port: int = field(default_factory=free_port)
    ui: int = field(default_factory=free_port)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    addresses: int = 1

    @property
    def master(self) -> str:
        """The URL that a driver is given."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, *arguments: str, shown: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """Start a command on a new machine; what it prints is in a file of that name."""
        boot, own = command(*arguments, shown=shown)
        ours = {key: value for key, value in inherited().items() if not key.startswith("ONLYONCE_")}
        given = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **self.store}
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                boot,
                env=ours | given | own | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def service(
        self, name: str, *arguments: str, ui: int, shown: Path | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """A service of Spark; healthy when this returns."""
        spark_class = str(Path(sys.executable).with_name("spark-class"))
        process = self.start(name, spark_class, *arguments, shown=shown, **environment)
        kind = "spark-master" if "Master" in arguments[0] else "spark-worker"
        host = arguments[arguments.index("--host") + 1]
        processes.wait_until(lambda: _is_well(kind, host, ui) or process.poll() is not None, 240, name)
        assert process.poll() is None, self.told(name)
        return process

    def worker(self, name: str, shown: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """One more worker, with one core. A fail-point that kills ends all of its machine."""
        # Of one address Spark would take them for one machine, and read the other's disk.
        self.addresses += 1
        ui, address = free_port(), f"127.0.0.{self.addresses}"
        arguments = ["--host", address, "--webui-port", str(ui), "--work-dir", f"{HOME}/work", self.master]
        given = {"SPARK_LOCAL_IP": address, "SPARK_WORKER_CORES": "1", "SPARK_WORKER_MEMORY": "2g", **environment}
        return self.service(name, "org.apache.spark.deploy.worker.Worker", *arguments, ui=ui, shown=shown, **given)

    def driver(
        self,
        platform: Platform,
        *arguments: str,
        name: str = "driver",
        shown: Path | None = None,
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        application: str = "onlyonce.run.stream",
    ) -> subprocess.Popen[str]:
        """A run, or another application, on a machine that has an empty disk."""
        given = {
            **platform.environment,
            "ONLYONCE_HOME": f"{HOME}/home",
            "ONLYONCE_DRIVER_MEMORY": "1g",
            "SPARK_EXECUTOR_MEMORY": "512m",
        }
        given["ONLYONCE_SHUFFLE_PARTITIONS"] = (
            "2"  # of a state, as docker-compose.yml says it too; Spark would make 200
        )
        told = f"code=$?; cat {HOME}/home/logs/errors/*; exit $code"
        prepared = (
            f'mkdir {HOME}/conf; printf %s "$SPARK_SETTINGS" > {HOME}/conf/spark-defaults.conf; "$@" || {{ {told}; }}'
        )
        settings = "".join(f"{key} {value}\n" for key, value in (BOTH | dict(conf or {})).items())
        given |= {"SPARK_SETTINGS": settings, "SPARK_CONF_DIR": f"{HOME}/conf"}
        run = [sys.executable, "-m", application, *arguments, "--master", self.master]
        return self.start(name, "sh", "-ec", prepared, "driver", *run, shown=shown, **(given | dict(environment or {})))

    def told(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text()

    def ends_well(self, driver: subprocess.Popen[str], name: str = "driver") -> None:
        """The run ends by itself, without an error."""
        assert driver.wait(PATIENCE) == 0, self.told(name)[-4000:]

    def lose(self, process: subprocess.Popen[str]) -> None:
        """Kill all that runs on a machine, at once."""
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(60)

    def wake(self, process: subprocess.Popen[str]) -> None:
        """Let go on what a fail-point has stopped on a machine."""
        for one in stopped(psutil.Process(process.pid)):
            one.resume()

    def stop(self) -> None:
        """End what was started, the last one first."""
        for process in reversed(self.started):
            if process.poll() is None:
                self.lose(process)


BOTH = {
    "spark.locality.wait": "0s", "spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}  # fmt: skip
"""Tasks go to all workers, from the first one on. The ratio is of `spark.cores.max`; without it Spark waits for none."""


def _is_well(kind: str, host: str, ui: int) -> bool:
    with suppress(OSError, ValueError):  # a page before its JSON is there
        return health.CHECKS[kind][1](health.answer(f"http://{host}:{ui}/json/"))
    return False


@contextmanager
def machines(folder: Path, store: Mapping[str, str], workers: int = 2) -> Iterator[Machines]:
    """A master and so many workers, on a machine each."""
    needed()
    folder.mkdir(parents=True, exist_ok=True)
    made = Machines(folder, store)
    try:
        arguments = ["--host", "127.0.0.1", "--port", str(made.port), "--webui-port", str(made.ui)]
        made.service(
            "master", "org.apache.spark.deploy.master.Master", *arguments, ui=made.ui,
            SPARK_MASTER_OPTS="-Dspark.deploy.defaultCores=2 -Dspark.master.rest.enabled=false",
        )  # fmt: skip
        for number in range(workers):
            made.worker(f"worker-{number}")
        yield made
    finally:
        made.stop()
