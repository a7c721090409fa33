"""The two pipelines that ship over Pub/Sub, whose publishers send some records twice: by an attribute."""

from __future__ import annotations

from dataclasses import replace

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce.api.pipeline import Pipeline, PubSub
from tests.support.messages import AT_ONCE


def _from_messages(pipeline: Pipeline, attribute: str, schema: str) -> Pipeline:
    subscription = f"projects/test/subscriptions/{pipeline.name}"
    source = PubSub(
        subscription=subscription,
        record_id_attribute=attribute,
        max_messages=500,
        max_files_a_batch=2,
        drained_after=AT_ONCE,
    )
    return replace(pipeline, source=source, schema=schema, record_id=(attribute,))


PIPELINES = [
    _from_messages(FLIGHTS, "flight_id", f"{FLIGHTS.schema}, flight_id string"),
    _from_messages(USER_COUNTS, "event_id", USER_COUNTS.schema),
]
