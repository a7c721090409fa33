"""The pipeline `shop` fed by a topic whose messages are in a format that a schema registry knows; the environment says
which."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from onlyonce.api.messages import Avro, JsonSchema, Protobuf
from onlyonce.api.pipeline import Kafka
from tests.support.shop import SHOP

REGISTRY = "env:SHOP_REGISTRY"
KEY = Avro(registry=REGISTRY, columns=("id",))
OF: dict[str, dict[str, Any]] = {
    "avro": {"value": Avro(registry=REGISTRY), "key": KEY},
    "protobuf": {"value": Protobuf(registry=REGISTRY)},
    "json": {"value": JsonSchema(registry=REGISTRY), "key": KEY},
}
_format = os.environ.get("SHOP_FORMAT", "avro")
_ids = ", schema_id int" + (", key_schema_id int" if "key" in OF[_format] else "")

PIPELINES = [
    replace(
        SHOP,
        schema=SHOP.schema + _ids,
        source=Kafka(
            topic=os.environ.get("SHOP_TOPIC", "shop"),
            servers=os.environ.get("SHOP_SERVERS", "localhost:9092"),
            max_offsets_a_batch=int(os.environ.get("SHOP_OFFSETS", "100")),
            **OF[_format],
        ),
    )
]
