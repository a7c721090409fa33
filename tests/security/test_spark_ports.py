"""A program on the same machine that speaks to the ports of Spark."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import accumulators

from tests.compose import composed
from tests.security.statements import states
from tests.support import spark_rpc

NOBODY = 65534


@states(
    "A local driver's ports refuse each request that does not know the session's secret, before they deserialise "
    "anything"
)
def test_a_local_driver_asks_for_authentication(spark: Any) -> None:
    """Before it deserialises anything: the driver's port is open to every user of the machine."""
    got = spark_rpc.answer(int(spark.conf.get("spark.driver.port")))

    assert "SaslMessage" in got


CALL = b"c\np0\ncall\nro1\ni7\ne\n"
"""A call of the batch function of a query, as the JVM makes it."""


def answer_to_another(port: int, patience: float = 20, says: bytes = CALL) -> bytes | None:
    """Say something to a port by a socket of another user.

    Return what the port answers; None if it says nothing for so many seconds.
    """
    os.seteuid(NOBODY)
    try:
        client = socket.socket()  # whose it is was decided here
    finally:
        os.seteuid(0)
    with client:
        client.settimeout(patience)
        try:
            client.connect(("127.0.0.1", port))
            client.sendall(says)
            return client.recv(1000)
        except ConnectionError:
            return b""
        except TimeoutError:
            return None


def listening(process: psutil.Process) -> set[int]:
    """Return the ports on which a process listens."""
    return {one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}


def ports_of_a_daemon(process: psutil.Process) -> set[int]:
    """Return the ports of a daemon of Python workers; none for another process, and for one that ends meanwhile."""
    with suppress(psutil.Error):
        if "onlyonce.engine.worker_daemon" in process.cmdline():
            return listening(process)
    return set()


@states(
    "The ports of a driver's Python answer to no other user: on Linux the driver closes a connection from "
    "another user before it reads a byte."
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_ports_of_a_drivers_python_are_for_its_user(spark: Any, tmp_path: Path) -> None:
    """The callback server, by which a query's batch function is called, and the daemon of workers. The query goes on."""
    batches: list[int] = []
    before = listening(psutil.Process())
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.foreachBatch(lambda frame, number: batches.append(number)).option(
        "checkpointLocation", str(tmp_path)
    )
    query.trigger(availableNow=True).start().awaitTermination()
    spark.sparkContext.parallelize(range(2)).map(str).collect()
    daemons = [ports for one in psutil.Process().children(recursive=True) if (ports := ports_of_a_daemon(one))]
    python = {
        spark.sparkContext._gateway._callback_server.port,
        *(listening(psutil.Process()) - before),
        *daemons[0],
    }
    java = listening(psutil.Process(spark.sparkContext._gateway.proc.pid))
    assert len(python) >= 2
    assert len(java) >= 3  # tests before this one may have left the session more

    assert {port: answer_to_another(port) for port in python} == dict.fromkeys(python, b"")
    # Ports by which the JVM handed rows to earlier tests wait for their secret, and say nothing.
    assert all(not got or b"Authentication error" in got for got in (answer_to_another(port, 3) for port in java))
    assert 7 not in batches
    assert spark.sparkContext.parallelize(range(2)).map(str).collect() == ["0", "1"]


@states("The server of accumulators accepts one connection at a time, and no other user can block it.")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_silent_connection_of_another_user_holds_up_no_accumulators(spark: Any) -> None:
    """A second server of the same class: the session's own may have its one connection already, by the JVM."""
    server = accumulators._start_update_server("secret", is_unix_domain_sock=False)
    try:
        assert answer_to_another(server.server_address[1], 3, b"") == b""
        with socket.create_connection(server.server_address, timeout=1) as own, pytest.raises(TimeoutError):
            own.recv(1)
    finally:
        server.shutdown()


@states(
    "In compose the master, the workers and the drivers share `SPARK_SECRET`, which is in a file and on no "
    "command line, and Spark's page has no kill buttons."
)
def test_compose_spark_shares_a_secret() -> None:
    """Each service that runs Spark reads the file. tests/cluster starts a master and a worker with it."""
    compose = composed.load()
    settings = dict(line.split() for line in composed.filled(compose["configs"]["spark"]["content"]).splitlines())
    spark = {name: service for name, service in compose["services"].items() if service.get("configs")}

    assert settings == {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "<SPARK_SECRET>",
        "spark.ui.killEnabled": "false",
    }
    assert spark.keys() == {"spark-master", "spark-worker", "airflow-scheduler"}
    for service in spark.values():
        [mounted] = service["configs"]
        assert mounted == {
            "source": "spark",
            "target": f"{composed.environment(service)['SPARK_CONF_DIR']}/spark-defaults.conf",
        }
        assert "SPARK_SECRET" not in str(service)
