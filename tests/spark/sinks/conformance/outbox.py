"""The outbox, read by psycopg2.

A team's table is behind a receiver: its endpoint inserts what it is sent, and answers 422 if the table refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import psycopg2
import pyarrow as pa

from onlyonce.api.pipeline import Output, Sink, Webhook
from onlyonce.core.errors import Refused
from onlyonce.sinks.outbox import deliver
from tests.spark.sinks.conformance import postgres, values
from tests.spark.sinks.conformance.postgres import PostgresAppend
from tests.spark.sinks.conformance.stage import OF_DATABASES, Kept, Stage, Team
from tests.support.endpoints import OK, Endpoint, Reply, Request

REFUSES = ("NOT NULL", "CHECK", "trigger", "deferred constraint", "partition")


class Outbox(Kept):
    """Rows as they are sent."""

    point = "postgres-after-units"
    kills = OF_DATABASES
    ways = ("tasks",)
    theirs = 0
    # A row is refused alone, so the CHECK is one that none of the rows satisfies.
    teams: ClassVar[dict[str, Team]] = {
        "its own values": postgres.TEAMS["its own values"],
        **{
            name: replace(postgres.TEAMS[name], made=postgres.TEAMS[name].made.replace("n < 2", "n < 1"))
            for name in REFUSES
        },
    }

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._receiver = PostgresAppend(stage)
        self._made = False
        self._endpoint = Endpoint(self._insert)
        self._endpoint.__enter__()

    def close(self) -> None:
        self._endpoint.__exit__(None, None, None)

    @property
    def sink(self) -> Sink:
        return Webhook(url=self._endpoint.url, keys="id", pause=timedelta(milliseconds=5))

    def make(self, statements: str) -> None:
        self._receiver.make(statements)
        self._made = True

    def write(
        self, batch: int, rows: pa.Table, way: str = "tasks", point: str | None = None, kills: Sequence[str] = ()
    ) -> None:
        """Write a batch, and deliver it if there is a receiver.

        What the receiver has answered to a dead letter is raised as Refused.
        """
        super().write(batch, rows, way, point, kills)
        if not self._made:
            return
        deliver.deliver(
            self.stage.log.database, self.stage.name, Output(name=self.stage.name, transform="a:b", sink=self.sink)
        )
        dead = self.stage.log.rows(
            "SELECT answer FROM onlyonce.outbox WHERE output = %s AND state = 'dead'", self.stage.name
        )
        if dead:
            raise Refused(dead[0][0])

    def read(self) -> list[dict[str, Any]]:
        if self._made:
            return self._receiver.read()
        found = self.stage.log.rows(
            "SELECT payload::text FROM onlyonce_private.outbox WHERE output = %s", self.stage.name
        )
        return [values.parsed(payload) for (payload,) in found]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return values.as_json(kind, value)

    def _insert(self, _: int, request: Request) -> Reply:
        try:
            self.stage.log.rows(
                f"INSERT INTO results.{self.stage.name} (id, n) VALUES (%s, %s)", request.body["id"], request.body["n"]
            )
        except psycopg2.Error as error:
            return Reply(422, effect=False, body=str(error))
        return OK
