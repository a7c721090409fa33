"""A program on the same machine that speaks to the ports of Spark."""

from __future__ import annotations

from typing import Any

from tests.compose import composed
from tests.security.statements import states
from tests.support import spark_rpc


@states("A local driver's ports refuse each request that does not know the session's secret, before they deserialise anything")
def test_a_local_driver_asks_for_authentication(spark: Any) -> None:
    """Before it deserialises anything: the driver's port is open to every user of the machine."""
    got = spark_rpc.answer(int(spark.conf.get("spark.driver.port")))

    assert "SaslMessage" in got


@states("In compose the master, the workers and the drivers share `SPARK_SECRET`, which is in a file and on no command line, and Spark's page has no kill buttons.")
def test_compose_spark_shares_a_secret() -> None:
    """Each service that runs Spark reads the file. tests/cluster starts a master and a worker with it."""
    compose = composed.load()
    settings = dict(line.split() for line in composed.filled(compose["configs"]["spark"]["content"]).splitlines())
    spark = {name: service for name, service in compose["services"].items() if service.get("configs")}

    assert settings == {"spark.authenticate": "true", "spark.authenticate.secret": "<SPARK_SECRET>", "spark.ui.killEnabled": "false"}
    assert spark.keys() == {"spark-master", "spark-worker", "airflow-scheduler"}
    for service in spark.values():
        [mounted] = service["configs"]
        assert mounted == {"source": "spark", "target": f"{composed.environment(service)['SPARK_CONF_DIR']}/spark-defaults.conf"}
        assert "SPARK_SECRET" not in str(service)
