"""The interface of a sender of rows, and the choice of a sink's sender."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from onlyonce.declare.pipeline import BigQuery, Webhook
from onlyonce.model.sinks.delivery import Answer, Row
from onlyonce.sinks.outbox import bigquery, webhook


class Sender(Protocol):
    """Sends rows to one target. `ordered`: rows of one key go one after the other. `ahead`: how many rows are looked at
    at once; `under_way`: how many requests may be begun and not recorded, which a crash leaves unanswered."""

    ordered: bool
    ahead: int
    under_way: int

    def fits(self, rows: Sequence[Row]) -> int:
        """How many of these rows of one key, from the first on, go into one request; at least one."""

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """One request; an answer for each row. Never sends twice. Raises Unsent."""


def sender_of(sink: Webhook | BigQuery) -> AbstractContextManager[Sender]:
    """The sender of an output's sink, open inside. Raises Refused for a setting that is missing."""
    if isinstance(sink, BigQuery):
        return bigquery.opened(sink)
    return webhook.opened(sink)
