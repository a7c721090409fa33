"""The command of a driver that outlives its task is the one that the provider's hook runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from onlyonce.airflow.spark_job import DriverHook
from onlyonce.airflow.stream_job import FLAGS, submit_command
from onlyonce.core.errors import Refused

CONF = {"spark.a": "1", "spark.b": 2}
ALL = {word: f"of {word}" for word in FLAGS} | {"verbose": True, "spark_binary": "spark3-submit", "yarn_queue": "etl"}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("local[2,4]", {}, {}),
    ("local[2,4]", {}, {"conf": CONF, "deploy_mode": "client"}),
    ("spark://host:7077", {"deploy-mode": "client", "spark-binary": "spark2-submit"}, {"conf": CONF, "executor_cores": 3}),
    ("yarn", {"queue": "nightly", "principal": "etl@REALM"}, {"keytab": "/keys/etl", "conf": CONF}),
    ("yarn", {"queue": "nightly"}, {**ALL, "conf": CONF}),
    ("k8s://https://host:443", {"namespace": "data"}, {"conf": CONF}),
    ("k8s://https://host:443", {"namespace": "data"}, {"conf": {"spark.kubernetes.namespace": "other"}}),
]  # fmt: skip


@pytest.mark.parametrize("master, extra, given", CASES)
def test_the_command_is_that_of_the_provider_s_hook(
    monkeypatch: pytest.MonkeyPatch, master: str, extra: dict[str, Any], given: dict[str, Any]
) -> None:
    """The hook's own method is asked here, and nowhere in the package."""
    connection = {"conn_type": "spark", "host": master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_OUR_SPARK", json.dumps(connection))
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)  # of a provider that is not installed
    given = {"name": "onlyonce sales", **given}
    hook = DriverHook(conn_id="our_spark", application_args=["sales", "--continuous"], **given)

    found = submit_command(master, extra, given, "/a/stream.py", ["sales", "--continuous"])

    assert found == hook._build_spark_submit_command("/a/stream.py")


@pytest.mark.parametrize("extra, given", [
    ({"keytab": "YWJj"}, {}), ({}, {"post_submit_commands": ["curl -X POST quit"]}), ({}, {"use_krb5ccache": True}),
])  # fmt: skip
def test_what_needs_a_task_that_stays_is_refused(extra: dict[str, Any], given: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        submit_command("yarn", extra, given, "/a/stream.py", [])
    assert "workers_outlive_tasks=False" in refused.value.hint
