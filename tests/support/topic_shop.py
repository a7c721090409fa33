"""The pipeline `shop` fed by a topic, which the environment names: by the sale's id; with one plain output by the
message's key, and by its place."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from typing import Any

from onlyonce.api.pipeline import Kafka, Output, Postgres
from tests.support.shop import SHOP

_start = os.environ.get("SHOP_START", "earliest")
_options: dict[str, Any] = {} if _start in ("earliest", "latest") else {"start": datetime.fromisoformat(_start)}
if _start == "latest":
    _options = {"start": "latest"}
if patience := os.environ.get("SHOP_PATIENCE"):
    _options["options"] = {"default.api.timeout.ms": patience, "request.timeout.ms": patience}

TOPIC = Kafka(
    topic=os.environ.get("SHOP_TOPIC", "shop"),
    servers=os.environ.get("SHOP_SERVERS", "localhost:9092"),
    max_offsets_a_batch=int(os.environ.get("SHOP_OFFSETS", "100")),
    consumer_group=os.environ.get("SHOP_GROUP"),
    on_loss="skip" if os.environ.get("SHOP_ON_LOSS") == "skip" else "stop",
    **_options,
)
KEYED = replace(TOPIC, key="id", headers=("shop",))
ROWS = (Output(name="rows", transform="tests.support.plain:rows", sink=Postgres(table="results.rows")),)
BY = {
    "id": replace(SHOP, source=TOPIC),
    "key": replace(SHOP, source=KEYED, outputs=ROWS),
    "place": replace(SHOP, source=TOPIC, record_id=(), outputs=ROWS),
}

PIPELINES = [BY[os.environ.get("SHOP_BY", "id")]]
