"""Exactly-once batch and stream pipelines on Airflow, Spark, PostgreSQL and Delta Lake: what a declaration imports.

from onlyonce import Delta, Files, Fixed, Output, Pipeline

`onlyonce.open("flights")` is for a notebook. Its module, `onlyonce.notebook`, is loaded at the first call.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onlyonce.api.messages import Avro, Debezium, JsonSchema, Protobuf
from onlyonce.api.pipeline import (
    BigQuery,
    BigQueryStream,
    Custom,
    CustomSink,
    Delta,
    DeltaSource,
    Files,
    FileSink,
    Growing,
    Iceberg,
    Input,
    Join,
    Kafka,
    KafkaSink,
    Lookup,
    MySQL,
    Output,
    Pipeline,
    Postgres,
    PubSub,
    Stateful,
    Webhook,
)
from onlyonce.api.sinks import Sink
from onlyonce.api.sources import Source
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused, Retryable, Superseded
from onlyonce.core.triggers import AfterRecords, AfterTime
from onlyonce.core.windows import Fixed, Session, Sliding, Window

if TYPE_CHECKING:
    from onlyonce.notebook import open as open  # not in __all__: a star import must leave Python's own alone

__all__ = [
    "AfterRecords",
    "AfterTime",
    "Avro",
    "BigQuery",
    "BigQueryStream",
    "Custom",
    "CustomSink",
    "Debezium",
    "Delta",
    "DeltaSource",
    "FileSink",
    "Files",
    "Fixed",
    "Growing",
    "Iceberg",
    "Input",
    "InvariantBroken",
    "Join",
    "JsonSchema",
    "Kafka",
    "KafkaSink",
    "Lookup",
    "MySQL",
    "OnlyonceError",
    "Output",
    "Pipeline",
    "Postgres",
    "Protobuf",
    "PubSub",
    "Refused",
    "Retryable",
    "Session",
    "Sink",
    "Sliding",
    "Source",
    "Stateful",
    "Superseded",
    "Webhook",
    "Window",
]


def __getattr__(name: str) -> Any:
    if name != "open":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("onlyonce.notebook").open


def __dir__() -> list[str]:
    return [*globals(), "open"]
