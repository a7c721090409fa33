"""Find what `onlyonce check` and a first run warn of: a declaration that is right, and may not be meant.

Each function returns lines that begin with the user's own file and line. None needs Spark or a database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from onlyonce.api import ddl, load
from onlyonce.api.declaration import declared_at, is_left_out
from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Pipeline, each_input
from onlyonce.api.pipeline import folder as inbox_of
from onlyonce.api.resolve import named_variables
from onlyonce.api.sources import IN_COLUMNS, line_layout
from onlyonce.core.changing_calls import changing_calls
from onlyonce.core.windows import Chained
from onlyonce.environment import variable, why_missing
from onlyonce.unexpected import extra_of, is_installed


def missing_inboxes(pipeline: Pipeline) -> list[str]:
    """Return which declared inboxes are not folders here.

    No mistake, since a check may run on another machine. A run refuses such an inbox.
    """
    return [
        f"{declared_at(one.source)}the inbox of {pipeline.name}, {folder}, is not a folder here: a run needs it "
        f"(mkdir -p {folder}, or correct the name)"
        for one in each_input(pipeline)
        if one.source.has_inbox and not one.source.makes_inbox
        if isinstance(folder := inbox_of(one), Path) and not folder.is_dir()
    ]


def unasked_brokers(pipeline: Pipeline) -> list[str]:
    """Return the brokers of a pipeline's topics: a check asks none, since it may run on another machine."""
    return [f"Kafka at {one.source.servers}" for one in each_input(pipeline) if isinstance(one.source, Kafka)]


def lag_lacks() -> str:
    """Return what is to be installed before `onlyonce lag` can ask a broker, as the rest of a sentence; or nothing."""
    return "" if is_installed("confluent_kafka") else f", after pip install '{extra_of('confluent_kafka')}'"


WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def doubtful_event_times(pipeline: Pipeline) -> list[str]:
    """Return which event times are declared as strings or whole numbers: the column may hold something else.

    A record is invalid if its string is not ISO 8601. A number without a format is a count of seconds.
    """
    found = []
    for one in each_input(pipeline):
        kind = ddl.types(one.schema)[one.event_time]
        whose = f"pipeline {pipeline.name}{f', source {one.part.name}' if one.part else ''}"
        at = f"{declared_at(pipeline, 'event_time')}{whose}: event_time={one.event_time!r} is"
        if kind == "string":
            found.append(
                f"{at} a string: a record is invalid if it is not ISO 8601, like 2026-01-31T10:00:00Z. Name another "
                f"column if it holds no times{_or_a_timestamp(one)}"
            )
        elif kind in WHOLE_NUMBERS and one.event_time not in one.formats:
            found.append(f"{at} a whole number, read as seconds since 1970. Name another column if it holds no times")
    return found


def _or_a_timestamp(pipeline: Pipeline) -> str:
    """Return how to declare the event time in another form, if the source reads strings as times at all."""
    if pipeline.event_time in pipeline.source.own_columns or line_layout(pipeline.source) in IN_COLUMNS:
        return ""
    return f", or declare it as a timestamp: formats={{{pipeline.event_time!r}: …}} then names another form"


def without_delay(pipeline: Pipeline) -> list[str]:
    """Return which outputs with windows leave out watermark_delay, so that nothing may come out of order.

    No mistake: records may come in the order of their times. `late` other than 'keep' says what becomes of late ones.
    """
    return [
        f"{declared_at(output)}output {output.name} has no watermark_delay: a window closes with the first record that "
        "is past its end. A record of the window that comes after that is late, and in no result until a backfill. If "
        "records come out of order, declare how long a window waits: watermark_delay=timedelta(hours=1)"
        for output in pipeline.roots()
        if output.window and output.transform and output.late == "keep" and is_left_out(output, "watermark_delay")
        if not isinstance(output.window, Chained)
    ]


SPARK_NAME = re.compile(r"\w+", re.ASCII)
MYSQL_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


def names_in_quotes(pipeline: Pipeline) -> list[str]:
    """Return which tables have a name that SQL takes only in quotes, and how to write it.

    No mistake: outputs quote each name. A person who queries the table without quotes finds none, or another one.
    """
    return [
        f"{declared_at(output.sink, 'table')}output {output.name}: SQL takes the name of its table only in quotes. "
        f"Write it in queries as {written}, or declare a name of small letters, digits and _"
        for output in pipeline.outputs
        if (dialect := output.sink.sql_dialect)
        and (table := output.sink.table)
        and (written := _in_sql(dialect, table)) != table
    ]


def _in_sql(dialect: str, table: str) -> str:
    """Return a table's name as it is written in SQL: the parts in quotes that need them."""
    from sqlalchemy.dialects import mysql, postgresql  # a run, which imports this module, needs neither

    if dialect == "postgresql":
        names = postgresql.dialect().identifier_preparer  # type: ignore[no-untyped-call]
        return ".".join(map(names.quote, table.split(".")))
    if dialect == "mysql":
        in_mysql = mysql.dialect().identifier_preparer
        plain = MYSQL_NAME.fullmatch(table) and table.lower() not in in_mysql.reserved_words
        return table if plain else in_mysql.quote_identifier(table)
    return ".".join(part if SPARK_NAME.fullmatch(part) else f"`{part}`" for part in table.split("."))


def changing_values(pipeline: Pipeline, staged: Collection[str]) -> list[str]:
    """Return the calls of Python's clock and random numbers in the functions of outputs whose rows are not staged.

    No mistake: a call may serve a log line. `core.changing_calls` says what is not found.
    """
    if pipeline.mode != "exactly_once":
        return []
    found: dict[str, str] = {}
    for output in load.with_function(pipeline.outputs):
        is_staged = output.name in staged or output.stable_input
        # Staged rows keep neither the state of a join or processor, nor which records were rejected.
        or_staged = "" if output.join or output.stateful else "; or declare stable_input=True, which stages the rows"
        named = [] if is_staged else [(one, or_staged) for one in load.functions(output)]
        for one, otherwise in [*named, *([(load.reject(output), "")] if output.reject else [])]:
            for at, call, why, instead in _changing_calls(one):
                found.setdefault(
                    at,
                    f"{at}: output {output.name}: {call} {why}. A batch that is tried again after a crash gets other "
                    f"rows, and the run stops if they differ from rows that were written. Use {instead}{otherwise}",
                )
    return list(found.values())


def _changing_calls(named: Callable[..., Any]) -> Iterator[tuple[str, str, str, str]]:
    with suppress(*load.UNREADABLE):
        for file, text, name in load.text_of(named):
            for line, call, why, instead in sorted(changing_calls(text, name)):
                yield f"{file}:{line}", call, why, instead


def undeliverable(pipeline: Pipeline) -> dict[str, list[str]]:
    """Return what a delivery of the pipeline's outbox would lack here, packages and variables, by output.

    No mistake, since `onlyonce deliver` may run on another machine.
    """
    lines: dict[str, list[str]] = {}
    for output in pipeline.outputs:
        sink = output.sink
        if not sink.is_external or sink.is_own:
            continue
        lacking = [
            f"the variable {name} {why_missing(name)}" for name in sorted(named_variables(sink)) if not variable(name)
        ]
        if sink.package and not is_installed(sink.package):
            lacking.append(f"the package {sink.package} is not installed (pip install '{extra_of(sink.package)}')")
        if lacking:
            lines[output.name] = [
                f"{declared_at(sink)}output {output.name}: {one}: its rows wait in the outbox until `onlyonce deliver` "
                "runs where it is available"
                for one in lacking
            ]
    return lines
