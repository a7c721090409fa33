"""Check the health of a container: exit with 0 if the named service itself reports that it is healthy.

    python -m onlyonce.local.health api-server | scheduler | dag-processor | triggerer | spark-master | spark-worker

The services of docker-compose.yml run it every few seconds, so it imports little. A part of Airflow is healthy if the
api-server has its heartbeat; a worker is healthy if a master has accepted it.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

AIRFLOW = "http://airflow-api-server:8080/api/v2/monitor/health"


def _part(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda answer: bool((answer.get(name) or {}).get("status") == "healthy")


# service: where to ask, and what a good answer is
CHECKS: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
    "api-server": ("http://127.0.0.1:8080/api/v2/monitor/health", _part("metadatabase")),
    "scheduler": (AIRFLOW, _part("scheduler")),
    "dag-processor": (AIRFLOW, _part("dag_processor")),
    "triggerer": (AIRFLOW, _part("triggerer")),
    "spark-master": ("http://127.0.0.1:8080/json/", lambda answer: answer.get("status") == "ALIVE"),
    "spark-worker": ("http://127.0.0.1:8081/json/", lambda answer: bool(answer.get("masterurl"))),
}


def answer(url: str) -> dict[str, Any]:
    """Return the service's answer. Raise OSError if nothing answers, or if the answer has an error's status."""
    # A proxy from the environment does not know the containers' network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as response:
        return dict(json.load(response))


def main(service: str) -> int:
    """Ask once and return 0 if the service is healthy.

    An error of `answer` ends the process, which counts as unhealthy.
    """
    url, is_well = CHECKS[service]
    found = answer(url)
    print(json.dumps(found)[:500])
    return 0 if is_well(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
