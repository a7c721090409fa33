"""The sinks behind the outbox as the conformance suite sees them: rows staged by the product's own task, then
delivered."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from onlyonce import settings
from onlyonce.api.pipeline import BigQuery, Sent, Webhook
from onlyonce.core.errors import OnlyonceError
from onlyonce.testing.scratch import answers_lost
from onlyonce.testing.suite import Guarantee, OfOutbox, OwnSink, Row, make_rows
from tests.support.endpoints import DROPPED, LOST, OK, BigQueryServer, Endpoint, EventsEndpoint, Reply

SOON = timedelta(milliseconds=5)


@dataclass
class OfServer(OfOutbox):
    """A sink that speaks to a server of the test."""

    server: Any = field(init=False)

    def close(self) -> None:
        """End the server."""
        self.server.__exit__(None, None, None)

    def replies(self, *replies: Reply) -> AbstractContextManager[None]:
        """What the server does with its next requests; then it is well again."""
        return self._replies(replies, for_ever=False)

    @contextmanager
    def _replies(self, replies: tuple[Reply, ...], *, for_ever: bool) -> Iterator[None]:
        first, script = len(self.server.requests), self.server.script

        def scripted(number: int, _request: Any) -> Reply:
            at = number - first
            return replies[min(at, len(replies) - 1)] if for_ever or at < len(replies) else OK

        self.server.script = scripted
        with suppress(OnlyonceError) if not for_ever else _nothing():
            yield
        self.server.script = script

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """Those of PostgreSQL, and those of the server."""
        yield self.replies(DROPPED)
        yield self.replies(LOST, OK, DROPPED)
        yield from answers_lost()

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """The address is wrong; it may not be written."""
        return {
            "missing": lambda: self._replies((Reply(404, effect=False),), for_ever=True),
            "read-only": lambda: self._replies((Reply(403, effect=False),), for_ever=True),
        }


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@dataclass
class ToWebhook(OfServer):
    """An endpoint that honours the key: there each row is once."""

    batch = 1
    endpoint = Endpoint

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server = self.endpoint(honours=self.guarantee is Guarantee.EXACTLY_ONCE)
        self.server.__enter__()

    def sink(self) -> Sent:
        """One that does not wait long."""
        return Webhook(url=self.server.url, keys=("key",), pause=SOON, attempts=100, at_once=2, batch=self.batch)

    def seen(self) -> list[Row]:
        """What it has carried out."""
        return self.plain(self.server.effects)


class ToForgetfulWebhook(ToWebhook):
    """An endpoint that ignores the key."""

    guarantee = Guarantee.AT_LEAST_ONCE


class ToWebhookInBatches(ToWebhook):
    """One that gets several rows in a request, and honours their ids."""

    batch = 7
    endpoint = EventsEndpoint


@dataclass
class ToBigQuery(OfServer):
    """A server that remembers insert ids."""

    huge = 500_000  # a request takes 10 MB, and half of the characters are escapes there
    keyed = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server = BigQueryServer()
        self.server.__enter__()
        import os

        os.environ["BIGQUERY_EMULATOR_HOST"] = self.server.url

    def sink(self) -> Sent:
        """One that does not wait long."""
        return BigQuery(table="p.d.t", pause=SOON, attempts=100)

    def seen(self) -> list[Row]:
        """Its rows."""
        return self.plain(self.server.rows)


@dataclass
class ToLedger(OwnSink):
    """The example of a sink of one's own: an SQLite file."""

    target_class = "tests.support.ledger_sink:Ledger"

    @property
    def where(self) -> str:
        """Where."""
        return str(settings.home() / f"{self.output} led'ger \U0001f6d2.db")

    def seen(self) -> list[Row]:
        """Its rows."""
        with sqlite3.connect(self.where) as file:
            return self.plain([json.loads(row) for (row,) in file.execute("SELECT row FROM rows")])

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """A folder is in its place; no row may be added; there is no room for the third."""
        return {
            "missing": self._in_the_way,
            "read-only": lambda: self._while(
                "CREATE TRIGGER no BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'no'); END", "DROP TRIGGER no"
            ),
            "full": lambda: self._while(
                "CREATE TRIGGER no BEFORE INSERT ON rows WHEN NEW.seq > 1 BEGIN SELECT RAISE(ABORT, 'full'); END",
                "DROP TRIGGER no",
            ),
        }

    @contextmanager
    def _in_the_way(self) -> Iterator[None]:
        file = Path(self.where)
        aside = file.rename(file.with_suffix(".aside")) if file.exists() else None
        file.mkdir()
        yield
        file.rmdir()
        if aside:
            aside.rename(file)

    @contextmanager
    def _while(self, first: str, then: str) -> Iterator[None]:
        self.write(99, make_rows(99))
        with sqlite3.connect(self.where) as file:
            file.execute("DELETE FROM rows WHERE unit LIKE '%/99/%'")
            file.executescript(first)
        file.close()
        yield
        with sqlite3.connect(self.where) as file:
            file.executescript(then)
        file.close()


class ToDiary(ToLedger):
    """One that knows no units, and says so."""

    guarantee = Guarantee.AT_LEAST_ONCE
    target_class = "tests.support.ledger_sink:Diary"
