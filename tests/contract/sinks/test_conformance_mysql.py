"""The conformance suite over the MySQL sink, on a real MariaDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.testing.suite import CASES, ODD_NAMES, Case, odd_names_mean_only_themselves
from tests.contract.conformance_mysql import MySQLAppend, MySQLPlain, MySQLUpsert, ProcessesThere
from tests.contract.conftest import Log
from tests.support.mariadb import MariaDB


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize(
    "sink",
    [
        pytest.param(MySQLAppend, marks=pytest.mark.whole),
        *(pytest.param(sink, marks=pytest.mark.slow) for sink in (MySQLUpsert, MySQLPlain)),
    ],
    ids=lambda sink: getattr(sink, "__name__", None),
)
def test_a_mysql_sink_does_what_it_promises(
    sink: type[MySQLAppend], case: Case, shared: Log, tmp_path: Path, mariadb: MariaDB
) -> None:
    """In every mode that it has, in every case, by the guarantee that it declares."""
    under_test = sink(shared, ODD_NAMES[0] if case is odd_names_mean_only_themselves else "text", mariadb)
    try:
        case(under_test, ProcessesThere(shared, tmp_path, mariadb))
    finally:
        under_test.close()
