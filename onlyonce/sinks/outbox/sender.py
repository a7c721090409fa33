"""The interface of a sender of rows, and the choice of a sink's sender."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from onlyonce.declare.pipeline import BigQuery, Webhook
from onlyonce.model.sinks.delivery import Answer, Row
from onlyonce.model.sinks.parcels import Room
from onlyonce.sinks.outbox import bigquery, webhook


class Sender(Protocol):
    """Sends rows to one target.

    `ordered`: rows of one key go one after the other. `ahead`: how many rows are looked at at once; `under_way`: how
    many requests may be begun and not recorded, which a crash leaves unanswered; `room`: what one of them holds."""

    ordered: bool
    ahead: int
    under_way: int
    room: Room

    def size(self, row: Row) -> int:
        """The bytes of a row in a request, about."""

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """One request; an answer for each row. Never sends twice. Raises Unsent."""


def sender_of(sink: Webhook | BigQuery, output: str) -> AbstractContextManager[Sender]:
    """The sender of the sink of an output of this name, open inside. Raises Refused for a setting that is missing."""
    if isinstance(sink, BigQuery):
        return bigquery.opened(sink)
    return webhook.opened(sink, output)
