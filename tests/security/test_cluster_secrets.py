"""A person who sees Airflow's rendered templates, a process list or Spark's pages."""

from __future__ import annotations

import re

import pytest

import tests.dags.conftest  # noqa: F401 - gives Airflow a folder of its own

# isort: split
from airflow.sdk import DAG

from onlyonce.airflow.operators.spark_job import SparkJobOperator
from onlyonce.declare.named_variables import named_variables
from onlyonce.declare.pipeline import Custom, Kafka, Webhook
from onlyonce.model.errors import Refused
from onlyonce.spark import redaction
from tests.security.statements import states


@states("`env_vars` with a variable that a declaration names, or that is called a password, token, secret or key, is refused.")
@pytest.mark.parametrize("name", ["TEST_MYSQL", "AWS_SECRET_ACCESS_KEY", "ONLYONCE_DATABASE_URL"])
def test_a_secret_in_env_vars_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow shows `env_vars` in the rendered template, and spark-submit has them on its command line."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/mysql_shop.py")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "yarn"}')
    with DAG("d"):
        task = SparkJobOperator(task_id="drain", pipeline="shop", env_vars={name: "x", "TOKENIZERS_PARALLELISM": "1"})

    with pytest.raises(Refused, match=f"env_vars has {name},"):
        task.place()

    del task.env_vars[name]
    assert task.place() == ("yarn", "client")


@states("In YARN the driver gets the variables that the declaration names by a file that only Airflow's account may read.")
def test_every_kind_of_named_variable_is_found() -> None:
    """By an option, by `env:NAME`, and to a class of the user's own."""
    webhook = Webhook(url="https://x", authorization="TOKEN_OF", secret="KEY_OF")
    kafka = Kafka(topic="t", servers="s:1", options={"ssl.key.password": "env:PASS_OF", "client.id": "PLAIN"})
    custom = Custom(reader="a:B", needs_dedup=True, options={"dsn": "DSN_OF", "table": "orders"})

    assert named_variables((webhook, {"k": kafka}, custom)) == {"TOKEN_OF", "KEY_OF", "PASS_OF", "DSN_OF"}


@states("Spark's pages and event logs redact every variable of drivers and executors, and whatever your own `spark.redaction.regex` redacts.")
def test_variables_are_redacted() -> None:
    """The pattern of the team is part of ours."""
    pattern = redaction.merged("iban")

    assert pattern.startswith("(?:iban)|")
    assert re.search(pattern.replace("(?i)", ""), "spark.yarn.appMasterEnv.SHOP_DSN")
