"""Hadoop's own mini cluster: YARN with two node managers and HDFS, in one JVM.

Its containers are processes of this machine, each in a folder of its own.

Python speaks to that JVM by py4j, as PySpark does; it ends with this process.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from onlyonce.settings import within

MINI = Path(sys.prefix) / "yarn"
PYSPARK = Path(pyspark.__file__).parent / "jars"
SETTINGS = {
    "yarn.scheduler.capacity.root.queues": "default", "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9", "yarn.scheduler.minimum-allocation-mb": "256",
    # Of addresses, not of what is in memory: that is looked at, as YARN does by itself.
    "yarn.nodemanager.vmem-check-enabled": "false",
    # As docs/how-to/cluster.md asks for: else YARN puts each container's variables beside what it logs.
    "yarn.nodemanager.log-container-debug-info.enabled": "false",
}  # fmt: skip


@dataclass(frozen=True)
class Yarn:
    """A running cluster. `conf`: the folder that HADOOP_CONF_DIR names; `folder`: where containers work and log."""

    conf: Path
    folder: Path
    clients: Any
    machines: Any

    def applications(self) -> list[Any]:
        """What the resource manager says of all applications, the first one first."""
        return sorted(self.clients.getApplications(), key=lambda one: one.getApplicationId().getId())

    def masters(self) -> list[psutil.Process]:
        """The JVMs of the drivers that live: each is an application master."""
        return self._containers("org.apache.spark.deploy.yarn.ApplicationMaster")

    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors that live."""
        return self._containers("org.apache.spark.executor.YarnCoarseGrainedExecutorBackend")

    def _containers(self, name: str) -> list[psutil.Process]:
        return [one for one in psutil.process_iter() if _runs(one, name) and str(self.folder) in _cwd(one)]

    def lose_machine(self, of: psutil.Process) -> None:
        """End a container, and the node manager in whose folder it works. The machine does not come back."""
        found = re.search(r"-nm-(\d+)_", of.cwd())
        assert found, of.cwd()
        self.machines.getNodeManager(int(found[1])).stop()
        with suppress(psutil.NoSuchProcess):  # the node manager has ended it
            of.kill()

    def logs(self) -> str:
        """All that containers have printed, and what YARN keeps beside it."""
        return "".join(
            path.read_text(errors="replace") for path in sorted(self.folder.glob("onlyonce/*/*logDir*/*/*/*"))
        )


def _runs(process: psutil.Process, name: str) -> bool:
    with suppress(psutil.Error):
        return process.name() == "java" and name in process.cmdline()
    return False


def _cwd(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.cwd()
    return ""


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """A cluster, ended at the end. Skips where its jars were not brought."""
    if not MINI.is_dir():
        pytest.skip("`make .venv/.made/yarn` brings Hadoop's mini cluster (59 MB)")
    folder.mkdir(parents=True)
    java = Path(shutil.which("java") or "java").resolve().parents[1]
    with (folder / "hadoop.log").open("w") as log, within({"JAVA_HOME": str(java)}):
        port, token = launch_gateway(
            classpath=f"{MINI}/*:{PYSPARK}/*", javaopts=["-Xmx768m", f"-Dtest.build.data={folder}"], cwd=str(folder),
            die_on_exit=True, redirect_stdout=log, redirect_stderr=log, enable_auth=True,
        )  # fmt: skip
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    hadoop = gateway.jvm.org.apache.hadoop
    try:
        settings = hadoop.yarn.conf.YarnConfiguration()
        for name, value in SETTINGS.items():
            settings.set(name, value)
        hadoop.hdfs.MiniDFSCluster.Builder(settings).numDataNodes(1).build().waitActive()
        cluster = hadoop.yarn.server.MiniYARNCluster("onlyonce", 2, 1, 1)
        cluster.init(settings)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(120_000)
        clients = hadoop.yarn.client.api.YarnClient.createYarnClient()
        clients.init(cluster.getConfig())
        clients.start()
        told = hadoop.yarn.conf.YarnConfiguration(cluster.getConfig())
        told.unset("net.topology.node.switch.mapping.impl")  # of a class that only the mini cluster has
        yield Yarn(_written(gateway.jvm, told, folder / "conf"), folder, clients, cluster)
    finally:
        gateway.shutdown()


def _written(jvm: Any, settings: Any, folder: Path) -> Path:
    """The settings as clients read them."""
    folder.mkdir()
    for name in ("core-site.xml", "yarn-site.xml"):
        out = jvm.java.io.FileOutputStream(str(folder / name))
        settings.writeXml(out)
        out.close()
    return folder
