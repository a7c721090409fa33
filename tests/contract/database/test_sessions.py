"""A session of ours is the same whatever a server's owner has set for other people's work."""

from __future__ import annotations

import psycopg2
import pytest

from onlyonce.database.connect import run
from tests.contract.conftest import Log, ask

LONGER = "SELECT pg_sleep(0.1)"


@pytest.mark.parametrize("whose", ['DATABASE "{name}"', 'ROLE CURRENT_USER IN DATABASE "{name}"'])
def test_no_time_limit_of_a_database_or_role_ends_a_statement_of_ours(log: Log, whose: str) -> None:
    """It ends other people's. A batch whose rows need longer would fail at each attempt."""
    ask(log.url, f"ALTER {whose.format(name=log.name)} SET statement_timeout = '10ms'")
    with pytest.raises(psycopg2.errors.QueryCanceled):
        ask(log.url, LONGER)

    assert run(log.database, lambda conn: conn.exec_driver_sql(LONGER).rowcount) == 1
