"""The mutants, by the package that they break."""

from __future__ import annotations

from tests.mutants.cases import (
    catalog,
    commitlog,
    database,
    model,
    operate,
    outputs,
    receive,
    run,
    security,
    sinks,
    sources,
    spark,
    sql,
    storage,
)

TOPICS = (
    catalog,
    commitlog,
    database,
    model,
    operate,
    outputs,
    receive,
    run,
    security,
    sinks,
    sources,
    spark,
    sql,
    storage,
)
