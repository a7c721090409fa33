"""A person who sees Airflow's rendered templates, a process list or Spark's pages."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from pyspark.find_spark_home import _find_spark_home

import tests.dags.conftest  # noqa: F401 - gives Airflow a folder of its own

# isort: split
from airflow.sdk import DAG

from onlyonce.airflow.spark_job import SparkJobOperator, secret_properties
from onlyonce.api.pipeline import Custom, Kafka, Webhook
from onlyonce.api.resolve import named_variables
from onlyonce.core.errors import Refused
from onlyonce.engine import options
from tests.security.statements import states

GIVEN: dict[str, dict[str, Any]] = {
    "named": {"env_vars": {"TEST_MYSQL": "x"}},
    "key": {"env_vars": {"API_KEY": "x"}},
    "ours": {"env_vars": {"ONLYONCE_DATABASE_URL": "x"}},
    "pooler": {"env_vars": {"TEST_MYSQL_POOLER": "x"}},
    "url": {"env_vars": {"SHOP": "mysql://shop:s3cret@db/shop"}},
    "conf-yarn": {"conf": {"spark.yarn.appMasterEnv.TEST_MYSQL": "x"}},
    "conf-kubernetes": {"conf": {"spark.kubernetes.driverEnv.TEST_MYSQL": "x"}},
    "conf-executors": {"conf": {"spark.executorEnv.PGPASSWORD": "x"}},
    "conf-store": {"conf": {"spark.hadoop.fs.s3a.secret.key": "x"}},
    "conf-authenticate": {"conf": {"spark.authenticate.secret": "x"}},
    "conf-url": {"conf": {"spark.jars.repositories": "https://jars:s3cret@maven.example"}},
    "another word": {"repositories": "https://jars:s3cret@maven.example"},
}


@states(
    "`env_vars`, `conf` and the other words of the operator are refused with a variable that a declaration names, "
    "with what is called a password, token, "
    "secret or key, or with a password in a URL."
)
@pytest.mark.parametrize("given", GIVEN)
def test_no_word_of_the_operator_holds_a_secret(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is on spark-submit's command line or in the rendered template.

    A reference to a Secret holds none.
    """
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/mysql_shop.py")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "yarn"}')
    plain = {
        "spark.kubernetes.driver.secretKeyRef.TEST_MYSQL": "shop:key",
        "spark.kubernetes.driver.label.team-key": "a",
        "spark.yarn.appMasterEnv.TZ": "UTC",
    }
    with DAG("d"):
        refused = SparkJobOperator(task_id="run", pipeline="shop", **GIVEN[given])
        taken = SparkJobOperator(
            task_id="taken",
            pipeline="shop",
            conf=plain,
            env_vars={"TOKENIZERS_PARALLELISM": "1"},
            repositories="https://maven.example",
        )

    with pytest.raises(Refused, match="in the rendered template") as told:
        refused.place()

    assert "s3cret" not in str(told.value)
    assert taken.place() == ("yarn", "client")


SECRETS = {"SHOP_DSN": "s3cret-a\rspark.s3cret-b\n\ts3cret-c\\s3cret-d", "AWS_ACCESS_KEY_ID": "s3cret-e"}


@states(
    "Spark's pages and event logs redact every variable of drivers and executors, and whatever your own "
    "`spark.redaction.regex` redacts."
)
@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443"])
@pytest.mark.spark
def test_spark_submit_prints_no_secret(master: str) -> None:
    """The real one, told to say all that it knows: variables of drivers and executors, the team's own setting, and a
    value of several lines."""
    theirs = {options.SETTING: options.merged_redaction("iban"), "spark.iban": "s3cret-f", "spark.plain": "shown"}
    with secret_properties(master, SECRETS, SECRETS, SECRETS, theirs) as path:
        argv = [
            _find_spark_home() + "/bin/spark-submit",
            "--verbose",
            "--master",
            "local[1]",
            "--properties-file",
            path,
            "--class",
            "no.Such",
            "spark-internal",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert re.search(r"spark\.\S+\.SHOP_DSN", done.stdout + done.stderr)
    assert "shown" in done.stdout + done.stderr
    assert re.findall("s3cret-.", done.stdout + done.stderr) == []


@states(
    "In YARN the driver gets the variables that the declaration names by a file that only Airflow's account may read."
)
def test_every_kind_of_named_variable_is_found() -> None:
    """By an option, by `env:NAME`, and to a class of the user's own."""
    webhook = Webhook(url="https://x", authorization="TOKEN_OF", secret="KEY_OF")
    kafka = Kafka(topic="t", servers="s:1", options={"ssl.key.password": "env:PASS_OF", "client.id": "PLAIN"})
    custom = Custom(reader="a:B", needs_dedup=True, options={"dsn": "DSN_OF", "table": "orders"})

    assert named_variables((webhook, {"k": kafka}, custom)) == {"TOKEN_OF", "KEY_OF", "PASS_OF", "DSN_OF"}
