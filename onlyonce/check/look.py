"""Checks a declared pipeline before it runs: types, functions, and whether the functions' results fit the sinks.

| checked                                               | needs            |
|-------------------------------------------------------|------------------|
| the declaration and its types                         | nothing: they are checked when it is made |
| each function exists                                  | its module       |
| what it returns for frames without rows               | Spark, unless it has passed before (`kept`) |
| its result fits the sink's keys and existing table    | the sink's database, if it has one |

Errors: Refused, with the user's own file and line. Not promised: to find errors that only data causes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from onlyonce.check import fits, kept, tables
from onlyonce.declare import loading, parameters
from onlyonce.declare.outputs import newest
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model import origin
from onlyonce.model.errors import OnlyonceError
from onlyonce.session.failures import translate

log = structlog.get_logger()


@dataclass(frozen=True)
class Checked:
    """What a check has found.

    asked_spark   whether Spark had to be asked, and so was started
    wrong         output with a query of its own -> why its table, or that of an output made from it, can't take its
                  rows, or why one of its lookups can't be read. The others can run.
    """

    asked_spark: bool
    wrong: Mapping[str, BaseException]


def found(pipeline: Pipeline) -> dict[str, StructType] | None:
    """What each function gives, where that is kept; None: Spark must be asked.

    Raises Refused for a function that is not there.
    """
    for output in loading.with_function(pipeline.outputs):
        for function in loading.functions(output):
            parameters.check(output, function)
        if output.reject:
            parameters.check_reject(output, loading.reject(output))
    known = kept.schemas(pipeline, kept.key(pipeline))
    return {name: StructType.fromJson(schema) for name, schema in known.items()} if known is not None else None


def check(pipeline: Pipeline, session: Callable[[], SparkSession]) -> Checked:
    """Check one pipeline.

    Raises Refused for a mistake in its declaration or functions; what is wrong with a table is in the result.
    """
    known = found(pipeline)
    schemas, wrong = _asked(pipeline, session()) if known is None else (known, {})
    outputs = [output for output in pipeline.outputs if output.name in schemas]
    for output in outputs:
        fits.check_keys(output, schemas[output.name].names)
        newest.check_rows(output, {field.name: field.dataType.simpleString() for field in schemas[output.name].fields})
    wrong = wrong_tables(pipeline, schemas) | wrong
    if known is None and len(outputs) == len(pipeline.outputs):
        kept.keep(pipeline, kept.key(pipeline), {name: schema.jsonValue() for name, schema in schemas.items()})
    return Checked(known is None, wrong)


def wrong_tables(pipeline: Pipeline, schemas: Mapping[str, StructType]) -> dict[str, BaseException]:
    """Return what is wrong with tables, as `Checked.wrong` has it, an error that onlyonce does not know among it. No
    JVM."""
    wrong: dict[str, BaseException] = {}
    for output in pipeline.outputs:
        if output.name in schemas:
            try:
                tables.check(pipeline, output, schemas[output.name])
            except Exception as error:
                wrong.setdefault(pipeline.root_of(output).name, translate(error))
    return wrong


def _asked(pipeline: Pipeline, spark: SparkSession) -> tuple[dict[str, StructType], dict[str, BaseException]]:
    from onlyonce.check import function  # with it come the sinks and their drivers
    from onlyonce.lookups import tables as of_lookups
    from onlyonce.sources.parse import mapping

    for name in pipeline.sources:
        mapping.check(spark, pipeline.of_source(name))
    found, wrong = dict[str, StructType](), dict[str, BaseException]()
    for root in pipeline.roots():
        lookups = pipeline.lookups(root)
        try:
            seen = of_lookups.as_of(spark, lookups, of_lookups.newest(lookups)).frames
        except Exception as error:
            wrong[root.name] = translate(error)
            continue
        try:
            found |= function.schemas(spark, pipeline, root, seen)
        except Exception as error:
            if isinstance(error, OnlyonceError) and not origin.raised_by_user(error):
                raise
            # No mistake in the code, as far as we know: what the function needs may be away. Its output has its turn,
            # the others theirs.
            log.warning("not checked: the function raises an error of its own", output=root.name, what=str(error))
    return found, wrong
