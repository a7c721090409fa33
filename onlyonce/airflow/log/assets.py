"""The tables of outputs as Airflow's assets, so that other DAGs can follow them:
`schedule=[Asset.ref(name="flights/per_carrier")]`.

A task declares an alias and not the assets. An asset would have an event at the end of each run, even if the run had
nothing to do. Through the alias only a table has an event to which the run has written rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias

from onlyonce.airflow.log.task_environment import secret_variables
from onlyonce.model import stored_names
from onlyonce.settings import within


def alias(pipeline: str) -> AssetAlias:
    """What the tasks of a pipeline declare as their outlet."""
    return AssetAlias(name=stored_names.asset_alias(pipeline), group=stored_names.ASSET_GROUP)


def asset(pipeline: str, output: str) -> Asset:
    """The table of an output. Its name is what a DAG that follows it asks for."""
    return Asset(
        name=stored_names.asset(pipeline, output), uri=stored_names.asset_uri(pipeline, output),
        group=stored_names.ASSET_GROUP,
    )  # fmt: skip


def tell(pipeline: str, context: Any, declared: Mapping[str, str]) -> None:
    """An event for each table that the run has written to, by the log. Raises Retryable: a retry tells it then.

    Called by the operators when their driver has ended well; `declared` are the variables that say where the
    declarations are. `extra` has batch, batches, rows, delta_version and run_id.
    """
    events = context.get("outlet_events")
    if events is None:
        return  # not in a task that Airflow runs
    # By name: it reads Delta tables, and this file is imported where DAG files are parsed.
    log = importlib.import_module("onlyonce.operate.assets")
    with within({**secret_variables(), **declared}):
        committed = log.committed(pipeline, context["run_id"])
    for extra in committed:
        events[alias(pipeline)].add(asset(pipeline, extra["output"]), extra=extra)
