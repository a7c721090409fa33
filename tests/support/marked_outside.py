"""A pipeline that reads a record's shop from a topic, and brings it to each kind of sink outside: MySQL, Iceberg, a
topic, a webhook, BigQuery."""

from __future__ import annotations

import os
from dataclasses import replace

from onlyonce.api.pipeline import BigQuery, Iceberg, Kafka, KafkaSink, MySQL, Output, Webhook
from tests.support.iceberg_shop import CATALOG
from tests.support.mysql_shop import THERE
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

BROKER, ENDPOINT = "TEST_SERVERS", "TEST_ENDPOINT"
PER_SHOP, EACH = (f"tests.support.shop_transforms:{name}" for name in ("per_shop", "each"))


def named(name: str) -> str:
    """A topic of the test."""
    return os.environ.get(f"TEST_{name}", name)


PIPELINES = [
    replace(
        SHOP,
        source=Kafka(topic=named("IN"), servers=os.environ.get(BROKER, "localhost:9092"), max_offsets_a_batch=10),
        aliases={"shop": "Shop"},
        outputs=(
            Output(name="in_mysql", transform=PER_SHOP, window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=MySQL(table="per_shop", connection=THERE)),
            Output(name="mysql_each", transform=EACH, sink=MySQL(table="each_sale", connection=THERE, write="append")),
            Output(name="in_iceberg", transform=PER_SHOP, window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Iceberg(table="results.per_shop", catalog=CATALOG)),
            Output(name="iceberg_each", transform=EACH, sink=Iceberg(table="results.each", catalog=CATALOG)),
            Output(name="to_topic", transform=EACH, sink=KafkaSink(topic=named("OUT"), connection=BROKER, keys="shop")),
            Output(name="notified", transform=EACH, sink=Webhook(connection=ENDPOINT, keys="shop")),
            Output(name="in_bigquery", transform="tests.support.marked_outside:counted", sink=BigQuery(table="p.d.t")),
        ),
    )
]  # fmt: skip


def counted(sales):  # type: ignore[no-untyped-def]
    """Each sale with the number that the table asks for."""
    return sales.selectExpr("id", "shop", "cents AS n")
