"""What a driver asks its cluster, by the classes of each cluster manager that pyspark has. No cluster is needed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BACKEND = "org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend"


@pytest.mark.parametrize(
    "manager",
    [
        "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
        "org.apache.spark.scheduler.cluster.YarnClusterSchedulerBackend",
        "org.apache.spark.scheduler.cluster.YarnClientSchedulerBackend",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterSchedulerBackend",
    ],
)
def test_a_driver_knows_its_executors_on_every_cluster(spark: SparkSession, manager: str) -> None:
    """`onlyonce.engine.session` asks by a method that the common class of all cluster managers has."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    common, own = loader.loadClass(BACKEND), loader.loadClass(manager)

    assert common.isAssignableFrom(own)
    assert "getExecutorIds" in {method.getName() for method in common.getMethods()}
