"""Register the page and the timetable with Airflow.

Each process of Airflow loads this plugin by the entry point `airflow.plugins`.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from onlyonce.airflow.spark_job import TAB
from onlyonce.airflow.timetable import IntervalsByHand
from onlyonce.core import stored_names

PREFIX = stored_names.PAGE_ROUTE


class LazyPage:
    """The page's app, imported at its first request: only the API server serves it, and each task loads this file."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Call the app by ASGI, as the API server calls what is mounted."""
        from onlyonce.airflow.page.app import app

        await app(scope, receive, send)


class OnlyoncePlugin(AirflowPlugin):
    """Registers the timetable under the name by which the DAG files import it, the page, and its tab on a DAG run."""

    name = "onlyonce"
    timetables = (IntervalsByHand,)
    fastapi_apps: tuple[dict[str, Any], ...] = ({"app": LazyPage(), "url_prefix": f"/{PREFIX}", "name": "onlyonce"},)
    # Without a leading slash: Airflow's own path may not be the root.
    external_views = (
        {
            "name": "onlyonce",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "url_route": PREFIX,
            "nav_top_level": True,
        },
        {
            "name": "Commits",
            "href": f"{PREFIX}/runs?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": TAB,
        },
    )
