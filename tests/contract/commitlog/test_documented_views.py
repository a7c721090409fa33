"""What the pages say of the views holds in a real database: their statements run, and each view and column is
explained."""

from __future__ import annotations

import psycopg2

from docs.generate import views
from onlyonce.database import statements
from tests.contract.conftest import Log
from tests.docs.pages import blocks

COLUMNS = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'onlyonce'"


def test_each_statement_of_a_page_runs_for_who_only_reads(log: Log) -> None:
    """As it stands there, by the role that people log in as."""
    statements = blocks("sql")
    session = psycopg2.connect(log.server.url("reader", log.name).replace("+psycopg2", ""))
    try:
        for block in statements:
            with session, session.cursor() as cursor:
                cursor.execute(block.text)
    finally:
        session.close()
    assert statements


def test_each_view_and_column_is_on_the_page(log: Log) -> None:
    """None is there that the page does not explain, and none is explained that is not there."""
    explained = views.commented(statements.views())
    there = {(view, column) for view, column in log.rows(COLUMNS) if not explained[view][0].startswith("Deprecated")}
    assert {(view, column) for view, (_, columns) in explained.items() for column in columns} == there
