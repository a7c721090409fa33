"""The link from a task to the tab *Commits* of its DAG run."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink, conf

from onlyonce.model import stored_names

TAB = stored_names.COMMITS_ROUTE
"""The route of the tab. `onlyonce.airflow.plugin` registers the page under it."""


class CommitsLink(BaseOperatorLink):
    """Shown on each task of the operators of `onlyonce.airflow.operators.spark_job`."""

    name = "Commits of this run"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The path of the tab. Airflow asks for it at the end of a task, the operator itself when the work begins."""
        return path(ti_key.dag_id, ti_key.run_id, conf.get("api", "base_url", fallback=""))


def path(dag_id: str, run_id: str, base_url: str) -> str:
    """The tab's path, on whatever host a person has reached Airflow by. Pure."""
    root = urlsplit(base_url).path.rstrip("/")
    return f"{root}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}/plugin/{TAB}"
