"""Exactly-once batch and stream pipelines on Airflow, Spark, PostgreSQL and Delta Lake: what a declaration imports.

from onlyonce import Delta, Files, Fixed, Output, Pipeline
"""

from onlyonce.declare.pipeline import (
    BigQuery,
    Custom,
    CustomSink,
    Delta,
    Files,
    FileSink,
    Growing,
    Kafka,
    KafkaSink,
    Output,
    Pipeline,
    Postgres,
    PubSub,
    Webhook,
)
from onlyonce.declare.windows import Fixed, Session, Sliding
from onlyonce.model.errors import InvariantBroken, OnlyonceError, Refused, Retryable, Superseded

__all__ = [
    "BigQuery",
    "Custom",
    "CustomSink",
    "Delta",
    "FileSink",
    "Files",
    "Fixed",
    "Growing",
    "InvariantBroken",
    "Kafka",
    "KafkaSink",
    "OnlyonceError",
    "Output",
    "Pipeline",
    "Postgres",
    "PubSub",
    "Refused",
    "Retryable",
    "Session",
    "Sliding",
    "Superseded",
    "Webhook",
]
