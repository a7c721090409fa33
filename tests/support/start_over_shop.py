"""Each record as a row in Delta, and in a PostgreSQL and a MySQL of the team's own."""

from __future__ import annotations

from dataclasses import replace

from onlyonce import Delta, MySQL, Output, Postgres
from tests.support.shop import SHOP

PLAIN = "tests.support.kinds:plain"
PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(name="delta", transform=PLAIN, sink=Delta()),
            Output(
                name="postgres", transform=PLAIN, sink=Postgres(table="results.plain", connection="TEST_OTHER_DATABASE")
            ),
            Output(name="mysql", transform=PLAIN, sink=MySQL(table="plain", connection="TEST_MYSQL")),
        ),
    )
]
