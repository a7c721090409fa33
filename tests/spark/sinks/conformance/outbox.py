"""The outbox, read by psycopg2."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from onlyonce.declare.pipeline import Sink, Webhook
from tests.spark.sinks.conformance import values
from tests.spark.sinks.conformance.stage import Kept


class Outbox(Kept):
    """Rows as they are sent."""

    point = "postgres-after-units"
    ways = ("tasks",)

    @property
    def sink(self) -> Sink:
        return Webhook(url="https://example.org/rows", keys="id")

    def read(self) -> list[dict[str, Any]]:
        found = self.stage.log.rows("SELECT payload::text FROM onlyonce_private.outbox WHERE output = %s", self.stage.name)
        return [values.parsed(payload) for (payload,) in found]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return values.as_json(kind, value)
