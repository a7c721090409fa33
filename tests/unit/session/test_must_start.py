"""Where a driver has to start Spark even if it has nothing to do."""

from __future__ import annotations

import pytest

from onlyonce.engine import session


def test_only_yarns_cluster_mode_must_start_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """YARN fails an application of cluster mode that has made no Spark context; without spark-submit no JVM is asked."""

    def must(master: str, mode: str) -> bool:
        monkeypatch.setattr(session, "_theirs", lambda: {"spark.master": master, "spark.submit.deployMode": mode})
        return session.must_start()

    monkeypatch.setattr(session, "_submitted", lambda: False)
    assert not must("yarn", "cluster")
    monkeypatch.setattr(session, "_submitted", lambda: True)

    found = [must("yarn", "cluster"), must("yarn", "client"), must("k8s://https://host", "cluster")]

    assert found == [True, False, False]
