"""Describe what a pipeline reads and writes, for OpenLineage.

OpenLineage's provider asks the operators if it is installed; otherwise this is not used.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from onlyonce import environment, settings
from onlyonce.airflow.log import database_url
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.core import ownership
from onlyonce.core.errors import Refused

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
    return list(filter(None, map(_source, views))), [_sink(pipeline, output) for output in pipeline.outputs]


def _source(pipeline: Pipeline) -> Place | None:
    source = pipeline.source
    return source.dataset(settings.table_location(source.path) if source.path else api_pipeline.folder(pipeline))


def _sink(pipeline: Pipeline, output: Output) -> Place:
    place = ownership.Place(target(pipeline, output))
    return output.sink.dataset(place, _url(place.variable) if place.is_named else None)


def _url(variable: str | None) -> str | None:
    """Return the URL of the platform's database, or of the database that a variable names; None if it is not known."""
    with suppress(Refused):
        return environment.variable(variable) if variable else database_url()
    return None
