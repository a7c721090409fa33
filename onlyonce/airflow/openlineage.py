"""Describe what a pipeline reads and writes, for OpenLineage.

OpenLineage's provider asks the operators if it is installed; otherwise this is not used.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from onlyonce import environment, settings
from onlyonce.airflow.log import database_url
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import (
    Delta,
    DeltaSource,
    FileSink,
    Iceberg,
    Kafka,
    MySQL,
    Pipeline,
    Postgres,
    PubSub,
    target,
)
from onlyonce.api.sources import WithInbox
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Url

Place = tuple[str, str]
"""Namespace and name of a data set, as OpenLineage's naming has them."""


def events_of_task(pipeline: Pipeline) -> Any:
    """Return OpenLineage's answer for a run.

    Raise ImportError if its provider is not installed: then this is not called.
    """
    given = importlib.import_module("airflow.providers.openlineage.extractors").OperatorLineage
    dataset = importlib.import_module("airflow.providers.common.compat.openlineage.facet").Dataset
    inputs, outputs = places(pipeline)
    return given(
        inputs=[dataset(namespace=namespace, name=name) for namespace, name in inputs],
        outputs=[dataset(namespace=namespace, name=name) for namespace, name in outputs],
    )


def places(pipeline: Pipeline) -> tuple[list[Place], list[Place]]:
    """Return the places that a pipeline reads, and the places that its outputs write.

    Read only the settings and the environment variables that the sinks name.
    """
    views = [pipeline.of_source(name) for name in pipeline.sources] or [pipeline]
    return [place for view in views for place in _source(view)], [
        place for output in pipeline.outputs for place in _sink(pipeline, output)
    ]


def _source(pipeline: Pipeline) -> list[Place]:
    source = pipeline.source
    if isinstance(source, Kafka):
        return [(f"kafka://{source.servers.split(',')[0]}", source.topic)]
    if isinstance(source, PubSub):
        return [("pubsub", source.subscription.replace("projects/", "", 1).replace("/subscriptions/", ":"))]
    if isinstance(source, DeltaSource):
        return [_delta(source.path) if source.path else ("spark", source.where)]
    if isinstance(source, WithInbox):
        inbox = api_pipeline.folder(pipeline)
        return [(inbox.root, inbox.key) if isinstance(inbox, Url) else ("file", str(inbox))]
    return []


def _sink(pipeline: Pipeline, output: Any) -> list[Place]:
    kind, _, place = target(pipeline, output).partition(":")
    if isinstance(output.sink, Delta):
        return [_delta(place)]
    if isinstance(output.sink, Postgres):
        return [_table(*place.split(":", 1))]
    if isinstance(output.sink, MySQL):
        return [_mysql_table(*place.split(":", 1))]
    if isinstance(output.sink, Iceberg):
        return [(f"iceberg://{output.sink.catalog.lower()}", output.sink.table)]
    if isinstance(output.sink, FileSink):
        address = urlsplit(place)
        return (
            [(f"{address.scheme}://{address.netloc}", address.path.strip("/"))]
            if address.scheme
            else [("file", str(_files(place)))]
        )
    return [(kind, place)]


def _delta(declared: str) -> Place:
    at = settings.table_location(declared)
    return ("file", str(at)) if isinstance(at, Path) else (at.root, at.key)


def _table(variable: str, table: str) -> Place:
    """Return a table of the platform's database, or of the database that a variable names, without a secret."""
    try:
        found = environment.variable(variable) if variable else database_url()
    except Refused:
        found = None
    if found is None:
        return ("postgres", table)  # known only where the driver runs
    url = urlsplit(found)
    return (f"postgres://{url.hostname}:{url.port or 5432}", f"{url.path.strip('/')}.{table}")


def _mysql_table(variable: str, table: str) -> Place:
    found = environment.variable(variable)
    if found is None:
        return ("mysql", table)
    url = urlsplit(found)
    return (f"mysql://{url.hostname}:{url.port or 3306}", f"{url.path.strip('/')}.{table}")


def _files(place: str) -> Path:
    return settings.files_dir() / place
