"""Pipelines whose records are Pub/Sub messages: by their message id, by an attribute, and one that takes another's."""

from __future__ import annotations

from datetime import timedelta

from onlyonce.api.pipeline import Delta, Output, Pipeline, PubSub
from onlyonce.api.sources import LARGEST_MESSAGE
from onlyonce.core.windows import Fixed

AT_ONCE = timedelta(milliseconds=1)
"""One answer without a message ends a pull run: the fake keeps nothing back."""


def _pipeline(name: str, source: PubSub) -> Pipeline:
    output = Output(
        name="per_shop", transform="tests.support.shop_transforms:per_shop", window=Fixed(timedelta(minutes=1)),
        sink=Delta(),
    )  # fmt: skip
    return Pipeline(
        name=name, source=source, schema=f"{source.id_column} string, shop string, at timestamp, cents long, weight double",
        record_id=(source.id_column,), event_time="at", outputs=(output,),
    )  # fmt: skip


SALES = _pipeline("sales", PubSub(subscription="projects/test/subscriptions/sales", drained_after=AT_ONCE))
ORDERS = _pipeline(
    "orders",
    PubSub(subscription="projects/test/subscriptions/orders", record_id_attribute="order", drained_after=AT_ONCE),
)
THIEF = _pipeline("thief", PubSub(subscription="projects/test/subscriptions/sales", drained_after=AT_ONCE))

LARGE = _pipeline(
    "large",
    PubSub(subscription="projects/test/subscriptions/large", max_bytes=2 * LARGEST_MESSAGE, drained_after=AT_ONCE),
)

PIPELINES = [SALES, ORDERS, THIEF, LARGE]
