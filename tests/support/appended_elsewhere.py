"""Early panes into tables of other systems, with the number of the pane."""

from __future__ import annotations

from dataclasses import replace

from onlyonce import Iceberg, MySQL
from tests.support.appended_panes import PIPELINES as APPENDED
from tests.support.appended_panes import output
from tests.support.iceberg_shop import CATALOG
from tests.support.mysql_shop import THERE

PIPELINES = [
    replace(
        APPENDED[0],
        outputs=(
            output("iceberg", "early", Iceberg(table="results.iceberg", catalog=CATALOG)),
            output("mysql", "early", MySQL(table="mysql", connection=THERE)),
        ),
    )
]
