"""Decides which masters of Spark are accepted, and the address by which executors reach the driver.

In deploy mode client the driver runs where it is started, so its jars, files and secrets are there. In deploy mode
cluster they must come in an image, in an archive, or by `--py-files`. Who calls it: `onlyonce.spark.options`,
`onlyonce.airflow.operators.spark_job`. Errors: Refused for a master that can't work, before anything is started.
"""

from __future__ import annotations

import re
import socket

from onlyonce import settings
from onlyonce.model.errors import Refused

LOOPBACK = "127.0.0.1"
TAKEN = (
    "local[N], spark://host:port, or yarn, with the driver here (deploy mode client); yarn or k8s:// with it "
    "in the cluster"
)


def refuse_master(master: str, deploy_mode: str | None = None) -> None:
    """Raise Refused, by name, for a master or a deploy mode that is not supported."""
    kind = master.partition("://")[0].partition("[")[0]
    if deploy_mode == "cluster" and kind in ("yarn", "k8s"):
        return
    if (deploy_mode or "client") != "client":
        raise Refused(
            f"Spark's deploy mode {deploy_mode} is not supported with the master {master}",
            data="nothing was started",
            hint=f"a standalone cluster takes no Python driver, a local master is no cluster. Supported: {TAKEN}",
        )
    if kind not in ("local", "spark", "yarn"):
        raise Refused(
            f"Spark's master {master} is not supported",
            data="nothing was started",
            hint="Spark Connect is not supported, and Kubernetes only with the driver in the cluster. Supported: "
            f"{TAKEN}",
        )


def driver_host(master: str) -> str | None:
    """The address at which executors find the driver: ONLYONCE_DRIVER_HOST; of a local master the loopback; of spark://
    this machine's address on the way to the master.

    None: Spark chooses, by this machine's name."""
    if named := settings.spark().driver_host:
        return named
    if master.startswith("local"):
        return LOOPBACK
    found = re.match(r"spark://(\[[^]]+\]|[^:,/]+):(\d+)", master)
    return _on_the_way_to(found[1].strip("[]"), int(found[2])) if found else None


def _on_the_way_to(host: str, port: int) -> str | None:
    try:
        [(family, kind, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        with socket.socket(family, kind) as way:
            way.connect(address)  # of a datagram: nothing is sent
            return str(way.getsockname()[0])
    except OSError:
        return None  # the master's name is not known here: Spark says so itself
