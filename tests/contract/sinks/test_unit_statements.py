"""A unit takes as many statements as any other, however many rows it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg2.extensions
import pytest
from sqlalchemy import Engine, event

from onlyonce.database.connect import forget_connections
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, sales
from tests.contract.task import Task, shop_rows

FIRST, FEW, MANY = 1, 10, 10_000
WAYS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"write": "upsert", "keys": ("shop",)},
    "increment": {"write": "increment", "keys": ("shop",)},
    "replace": {
        "write": "replace",
        "windows": ("2026-01-01", "2026-01-02"),
        "columns": "shop text, cents bigint, window_start timestamptz",
    },
}
said: list[str] = []


class Counting(psycopg2.extensions.cursor):
    """Notes what is asked through it."""

    def execute(self, *given: Any) -> None:
        """A statement."""
        said.append("statement")
        super().execute(*given)

    def copy_expert(self, *given: Any) -> None:
        """Rows that stream."""
        said.append("copy")
        super().copy_expert(*given)


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """All that the product's sessions ask is noted."""

    def listen(raw: Any, _record: Any) -> None:
        raw.cursor_factory = Counting

    forget_connections()
    event.listen(Engine, "connect", listen)
    yield
    event.remove(Engine, "connect", listen)
    forget_connections()


def asked(work: Callable[[], Any]) -> list[str]:
    """What a piece of work asks the database, in order."""
    said.clear()
    work()
    return list(said)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_unit_of_a_table_asks_the_same_for_any_number_of_rows(log: Log, way: dict[str, Any]) -> None:
    """All of them come by one COPY. The first unit opens the session."""
    driver = log.start("shop", "per_shop")
    units = [Task(log, driver, log.database, batch=batch, **way) for batch in range(3)]
    _, few, many = (
        asked(partial(unit.run, shop_rows(rows))) for unit, rows in zip(units, (FIRST, FEW, MANY), strict=True)
    )

    assert few == many
    assert many.count("copy") == 1


def test_a_unit_of_the_outbox_asks_the_same_for_any_number_of_rows(log: Log) -> None:
    """The same of rows that wait to be sent."""
    box = Outbox(log)
    _, few, many = (asked(partial(box.put, sales(rows))) for rows in (FIRST, FEW, MANY))

    assert few == many
    assert many.count("copy") == 1
