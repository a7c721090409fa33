"""Check a declared pipeline before it runs: types, functions, and whether the functions' results fit the sinks.

`check_pipeline` is the whole check, for `onlyonce check` and for each run. It asks four things:

- the declaration and its types: checked when it is made
- each function exists: needs its module
- what it returns for frames without rows: needs Spark, unless it has passed before (`kept_check`)
- its result fits the sink's keys and existing table: needs the sink's database, if it has one

Refused names the user's own file and line. Errors that only data causes are not found; `replay` runs the
functions over one committed batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from onlyonce import settings
from onlyonce.api import functions, identity, load, resolve
from onlyonce.api.declaration import declared_at
from onlyonce.api.outputs import check_rows
from onlyonce.api.pipeline import Output, Pipeline, each_input, target
from onlyonce.api.target_identity import declared_identity
from onlyonce.commitlog import units
from onlyonce.commitlog.dropping import Targets, another_target
from onlyonce.commitlog.incarnations import Declarations
from onlyonce.core import changes, column_types, errors, failures, stored_names, unrepeatable
from onlyonce.core.changes import Change
from onlyonce.core.changing_calls import lines_of_call
from onlyonce.core.errors import DatabaseAway, OnlyonceError, Refused
from onlyonce.core.near_names import choose, near
from onlyonce.core.ownership import Place
from onlyonce.core.runs import first_line
from onlyonce.core.stored_names import OO_WINDOW, WINDOW_END, WINDOW_START
from onlyonce.core.unrepeatable import Kind
from onlyonce.core.windows import Chained
from onlyonce.database.connect import Database
from onlyonce.engine import session
from onlyonce.engine.failures import translate
from onlyonce.failpoints import passing
from onlyonce.lookups import tables
from onlyonce.outputs import function, open_sessions, query, results, windows
from onlyonce.outputs.unrepeatable import clock_in_aggregate, found_in, shared
from onlyonce.receive import events
from onlyonce.sinks.targets import implementation
from onlyonce.unexpected import is_installed, not_installed

NOTHING = "nothing was read or written"


def check_keys(output: Output, columns: list[str], declared: Collection[str] = ()) -> None:
    """Raise Refused for a key, or a column to order by, that the rows don't have. `declared`: the records' columns."""
    for key in (*output.sink.keys, *output.sink.order_by):
        if key not in columns:
            raise Refused(
                f"{declared_at(output.sink) or declared_at(output)}output {output.name}: the key {key!r} is not a "
                f"column of what {output.made_by} gives",
                data=NOTHING,
                hint=_other_key(key, columns, declared),
            )


def _other_key(key: str, columns: list[str], declared: Collection[str]) -> str:
    if key == OO_WINDOW:
        return f"{OO_WINDOW} is written as {WINDOW_START} and {WINDOW_END}: name these in its place"
    # What a window's rows are grouped by has the name of a declared column, as a rule; other columns are sums.
    is_grouped = WINDOW_START in columns
    keys = [name for name in columns if name in (WINDOW_START, WINDOW_END, *declared)] if is_grouped else columns
    if key not in declared:
        return choose(key, columns if near(key, columns) else keys)
    keep = f"group by {key} in the function too" if is_grouped else f"let the function keep {key}"
    return f"{keep} (it is a column of the records); or choose one of: {', '.join(keys)}"


def check_column_names(output: Output, schema: StructType) -> None:
    """Raise Refused for a column, or a field of a struct, with a name that the sink can't have."""
    refused = output.sink.not_in_names
    bad = next(((name, char) for name in _names(schema) for char in name if char in refused), None)
    if bad is not None:
        raise Refused(
            f"{declared_at(output.sink) or declared_at(output)}output {output.name}: {output.made_by} gives the column "
            f"{bad[0]!r}, and a {output.sink.kind} table can't have the character {bad[1]!r} in a name",
            data=NOTHING,
            hint="give it another name: F.count('*').alias('records'), or withColumnRenamed",
        )


def _names(kind: DataType) -> Iterator[str]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield field.name
            yield from _names(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _names(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _names(kind.keyType)
        yield from _names(kind.valueType)


def check_schemas(pipeline: Pipeline) -> None:
    """Raise Refused, at the declaration, for a schema that Spark can't read. It needs a session."""
    for one in (pipeline, *map(pipeline.of_source, pipeline.sources)):
        try:
            session.schema_of(one.schema)
        except (PySparkException, Py4JJavaError) as error:  # PySpark converts not all of Spark's errors
            said = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else first_line(error)
            source = f", source {one.part.name}" if one.part else ""
            raise Refused(
                f"{declared_at(pipeline, 'schema')}pipeline {pipeline.name}{source}: Spark can't read the schema: "
                f"{said.splitlines()[0]}",
                data=NOTHING,
                hint="correct the schema; a name with other characters than a-z, 0-9 and _ needs `…` around it",
            ) from error


def check_names(pipeline: Pipeline, output: Output) -> None:
    """Call the function that names an output's files for some windows, panes and shards. Raise Refused."""
    root = pipeline.root_of(output)
    window = root.window if root.has_windows else None
    output.sink.try_names(load.naming(output), load.subject_of_names(output), window, NOTHING)


# The columns that a query's functions return: each is called on frames without rows, once as in a backfill, once as in
# a stream. A check really calls the function, as the start of each run does; side effects happen.


@dataclass(frozen=True)
class Shapes:
    """The columns that an output's functions return, and those of the outputs made from it.

    schemas   output -> the columns that it sends to its sink
    staged    output -> why its rows are stored before they are written; the others are not
    """

    schemas: dict[str, StructType]
    staged: dict[str, str]


def function_shapes(
    spark: SparkSession, pipeline: Pipeline, root: Output, seen: results.Frames = results.NO_LOOKUPS
) -> Shapes:
    """Return what an output's functions return. Raise Refused at a function's line.

    `seen`: the tables of its lookups.
    """
    kept = spark.createDataFrame([], events.schema(pipeline))
    function.check_reject(pipeline, root, kept)
    result = results.of_pipeline(pipeline, root, windows.in_batch(kept, root), seen)
    shapes = Shapes({}, {})
    _stage(pipeline, root, result, shapes)
    open_sessions.check_function(root, result)
    if not root.gets_whole_windows:  # otherwise its function gets whole windows, and no stream
        _check_streams(spark, pipeline, root, seen)
    empty = spark.createDataFrame([], result.schema)
    shapes.schemas[root.name] = results.flat(results.rows_of(root, empty, seen)).schema
    for output in pipeline.made_from(root):
        made = results.rows_of(output, empty, seen)
        _stage(pipeline, output, made, shapes)
        shapes.schemas[output.name] = results.flat(made).schema
    return shapes


def _stage(pipeline: Pipeline, output: Output, result: DataFrame, shapes: Shapes) -> None:
    """Note why an output's rows are staged. Raise Refused if staging is not enough, or is declared off.

    Nothing is known of Python functions: the hash of the rows finds them at a replay.
    """
    exactly_once = pipeline.mode == "exactly_once"
    if why := results.why_staged(pipeline, output, result, exactly_once=exactly_once):
        shapes.staged[output.name] = why
    unrepeatables = found_in(result)
    if unrepeatables and isinstance(output.window, Chained):
        _check_before(pipeline, output, result)
    chance = unrepeatable.of_kind(unrepeatables, Kind.CHANCE)
    deciding = next((one for one in unrepeatables if one.decides), None)
    # The results of one batch have one clock.
    apart = next((one for one in unrepeatables if one.decides and one.listed.kind is not Kind.CLOCK), None)
    if function.results_are_united(result) and (found := apart or (shared(result) if chance else None)):
        raise Refused(
            f"{_at(output)}output {output.name}: the results of {output.made_by} are not deterministic, and {found}: "
            "Spark computes each result by itself, so a record could be in two of them or in none",
            data=NOTHING,
            hint=f"choose rows by {found.listed.instead}",
        )
    if output.join and deciding:
        raise Refused(
            f"{_at(output)}output {output.name}: a join of {output.made_by}, and {deciding}, which decides which rows "
            "a side has",
            data=f"{NOTHING}; a batch that is tried again after a crash would keep different rows of a side for later "
            "partners, whether its rows are staged or not",
            hint=f"choose rows by {deciding.listed.instead}",
        )
    if chance is None:
        return
    if exactly_once and output.name not in shapes.staged and not output.is_result:
        raise Refused(
            f"{_at(output)}output {output.name}: {output.made_by} is not deterministic "
            f"({chance}), and stable_input=False",
            data=f"{NOTHING}; a batch that is tried again after a crash would be stopped, half written",
            hint="take stable_input out: its rows are then stored before they are written; or use "
            f"{chance.listed.instead}",
        )


def _check_before(pipeline: Pipeline, output: Output, result: DataFrame) -> None:
    """Raise Refused if a function before in the chain may give different rows when it is called again.

    The plan of `result` has the functions of the whole chain. Staged rows don't help: they are the rows of one batch,
    and a window is made from closed windows of many.
    """
    for before in pipeline.upstream(output):
        kept = result.sparkSession.createDataFrame([], events.schema(pipeline))
        made = results.of_pipeline(pipeline, before, windows.in_batch(kept, before))
        if found := found_in(made):
            raise Refused(
                f"{_at(output)}output {output.name} is made from the closed windows of {before.name}, and there "
                f"{found[0]}",
                data=f"{NOTHING}; the function of {before.name} is called again on the records of each window that is "
                "made from its windows, and would give different rows from those in its table",
                hint=f"let {before.made_by} use {found[0].listed.instead}",
            )


def _check_streams(spark: SparkSession, pipeline: Pipeline, root: Output, lookups: results.Frames) -> None:
    """Raise Refused for what Spark can't do on a stream, as at the start of the query: mostly a missing window."""
    fields = [F.lit(None).cast(field.dataType).alias(field.name) for field in events.schema(pipeline).fields]
    stream = spark.readStream.format("rate").load().select(*fields)
    result = results.of_pipeline(pipeline, root, windows.in_stream(stream, root), lookups)
    if clock := clock_in_aggregate(result):
        called = _place_of_call(root, clock.seeded.partition("(")[0])
        at = f"{called}: " if called else _at(root)
        raise Refused(
            f"{at}output {root.name}: {root.made_by} uses {clock.shown}: an aggregate of the clock, which Spark does "
            "not take on a stream",
            data=NOTHING,
            hint=f"aggregate {clock.listed.instead}",
        )
    java = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    mode = java.streaming.OutputMode.Update() if root.gives_changed_rows else java.streaming.OutputMode.Append()
    try:
        java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            result._jdf.queryExecution().analyzed(),  # type: ignore[operator]
            mode,
        )
    except AnalysisException as error:
        raise _unsupported(root, error) from error


def _unsupported(root: Output, error: AnalysisException) -> Refused:
    known = query.refusal(root, error)
    if isinstance(known, Refused):
        return Refused(f"{_at(root)}{known.what}", data=NOTHING, hint=known.hint)
    told = (str(error).strip().splitlines() or [""])[0][:400].removeprefix("Expression(s): ").rstrip(";")
    place = errors.origin_of_function(load.transform(root))
    at = f"{errors.line_below(place, told.split('(')[0])}: " if place else ""
    return Refused(
        f"{at}output {root.name}: {root.made_by} can't run as a stream: {told}",
        data=NOTHING,
        hint="identify a row by its columns, or number the rows when the table is read"
        if "monotonically_increasing_id" in told
        else f"let the function aggregate by {OO_WINDOW}, or leave that step to the readers of the table",
    )


def _at(output: Output) -> str:
    place = errors.origin_of_function(load.transform(output))
    return f"{place}: " if place else ""


# What has passed a check is kept, so that an unchanged declaration with unchanged functions is checked only once.
#
# Each pipeline has one file, <home>/checks/<pipeline>.json. Its key covers everything that a check reads: the
# declaration, the modules of the user's functions with the modules in their folders, and the versions of Spark and of
# this package. A file or variable that a function reads is not covered; if it changes, the run itself fails.


Schemas = dict[str, dict[str, Any]]
"""The columns that each output's function gives, as Spark writes a schema in JSON."""


def key_of_check(pipeline: Pipeline) -> str:
    """Return a hash of all that decides what a check finds.

    It imports the functions. Raise Refused for a function that does not exist.
    """
    declared = [identity.mode(pipeline), *(load.fingerprint(pipeline, query) for query in pipeline.queries())]
    declared += [f"{output.name} stable_input={output.stable_input}" for output in pipeline.outputs]
    parts = [*declared, *(metadata.version(name) for name in ("onlyonce-pipelines", "pyspark")), sys.version]
    digest = hashlib.sha256("\n".join(parts).encode())
    for file in _modules(pipeline):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Kept:
    """The result of a check: the columns of each output, and why the rows of some are staged (`Shapes`).

    `ran`: query -> the fingerprint of the declaration under which a run has ended here, if the query's last batch ran
    under another one.
    """

    schemas: Schemas
    staged: Mapping[str, str]
    ran: Mapping[str, str] = field(default_factory=dict)


def why_asked(pipelines: Iterable[Pipeline]) -> str:
    """Return why Spark is asked about these pipelines: no check of them is kept that still holds."""
    if all(_file(one).is_file() for one in pipelines):
        return "a function or declaration has changed"
    return "the functions were not checked before"


def kept_check(pipeline: Pipeline, wanted: str) -> Kept | None:
    """Return what was found under that key; None if nothing was."""
    with suppress(FileNotFoundError, ValueError):
        there = json.loads(_file(pipeline).read_text())
        if there.get("key") == wanted:
            return Kept(there["schemas"], there["staged"], there.get("ran", {}))
    return None


def places_of_staged(
    pipelines: Iterable[Pipeline], staged: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], str]:
    """Return the line of the call for which each output is staged, or of its declaration, by (pipeline, output).

    `staged`: pipeline -> output -> why it is staged.
    """
    places = {
        (one.name, output.name): _place_of_call(output, unrepeatable.expression_of(why))
        or declared_at(output, "stable_input").removesuffix(": ")
        for one in pipelines
        for output in one.outputs
        if (why := staged.get(one.name, {}).get(output.name))
    }
    return {name: place for name, place in places.items() if place}


def _place_of_call(output: Output, called: str) -> str | None:
    """Return the line at which the functions of an output call one of Spark's; None if their modules don't show it."""
    with suppress(*load.UNREADABLE):
        for one in load.functions(output) if called and not output.is_result else ():
            for file, text, name in load.text_of(one):
                if lines := sorted(lines_of_call(text, name, called)):
                    return f"{file}:{lines[0]}"
    return None


def kept_staged(pipeline: Pipeline) -> Mapping[str, str]:
    """Return why an output's rows are staged, by output, as the last check has found it; empty if nothing is kept."""
    kept = kept_check(pipeline, key_of_check(pipeline))
    return kept.staged if kept else {}


def kept_ran(pipeline: Pipeline) -> Mapping[str, str]:
    """Return `Kept.ran` of the last check; empty if nothing is kept."""
    kept = kept_check(pipeline, key_of_check(pipeline))
    return kept.ran if kept else {}


def keep_ran(pipeline: Pipeline) -> None:
    """Keep that a run has ended under the present declaration of each query. No-op if its check is not kept."""
    under = key_of_check(pipeline)
    if kept := kept_check(pipeline, under):
        now = {query: load.fingerprint(pipeline, query) for query in pipeline.queries()}
        keep_check(pipeline, under, replace(kept, ran=now))


def keep_check(pipeline: Pipeline, under: str, found: Kept) -> None:
    """Keep what was found. If it can't be written, the next run checks again."""
    file = _file(pipeline)
    with suppress(OSError, Refused):
        settings.inside_home(settings.home(), stored_names.CHECKS_FOLDER)
        for left in file.parent.glob(f".{file.name}.*"):  # by a killed run; a run in progress then keeps nothing
            left.unlink(missing_ok=True)
        partial = file.with_name(f".{file.name}.{os.getpid()}")
        partial.write_text(json.dumps({"key": under, **asdict(found)}))
        passing("check-before-keep")
        partial.replace(file)
        passing("check-after-keep")


def _file(pipeline: Pipeline) -> Path:
    return settings.home() / stored_names.CHECKS_FOLDER / f"{pipeline.name}.json"


def _modules(pipeline: Pipeline) -> list[Path]:
    """Return the files of the functions' modules, and of all imported modules below the same folders."""
    own = {Path(file) for output in load.with_function(pipeline.outputs) for file in load.source_files(output)}
    folders = {file.parent for file in own if file.parent.name not in ("site-packages", "dist-packages")}
    beside = {
        Path(file)
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and any(Path(file).is_relative_to(folder) for folder in folders)
    }
    return sorted(file for file in own | beside if file.suffix == ".py" and file.is_file())


# The columns of the tables that outputs write to. No JVM.


def check_tables(pipeline: Pipeline, output: Output, schema: StructType) -> None:
    """Raise Refused if the rows of a function can't be written to the table as it is now.

    No-op if there is no table, or the sink has none. Raise DatabaseAway if a sink's database does not answer.
    """
    whose = f"{declared_at(output.sink) or declared_at(output)}output {output.name}"
    try:
        types = implementation(output.sink).types_there(pipeline, output, schema)
    except Refused as error:  # a table that can't take the output, a variable that is not set, a wrong password
        what = f"{whose}: {error.what.removeprefix(f'output {output.name}: ')}"
        raise Refused(what, data=error.data, hint=error.hint) from error
    except DatabaseAway as error:
        raise DatabaseAway(f"{whose}: {error.what}", data=error.data, hint=error.hint) from error
    if types:
        wanted, there, where = types
        column_types.refuse_other(whose, where, wanted, there, _simple(schema))


def taken_tables(database: Database, pipeline: Pipeline) -> list[Refused]:
    """Return a refusal for each output whose table another output has: no run writes there."""
    moved = {(pipeline.name, output.name) for output in pipeline.outputs}  # these leave the targets that they had
    claimed = {declared_identity(claim.place): claim for claim in Targets(database).claimed()}
    found = []
    for output in pipeline.outputs:
        place = target(pipeline, output)
        claim = claimed.get(declared_identity(place))
        if claim and (claim.instance, claim.output) not in moved:
            what = f"output {output.name}: {Place(place).where} belongs to {claim.instance}/{claim.output}"
            hint = another_target(claim.instance, claim.output, of=(pipeline.name, output.name))
            found.append(Refused(f"{declared_at(output.sink)}{what}", data=NOTHING, hint=hint))
    return found


def warnings_of_changes(pipeline: Pipeline, changed: Iterable[Change], new: Collection[str] = ()) -> list[str]:
    """Return the warnings for changes with which the runs of a pipeline continue. `new`: as in `columns_apart`."""
    found = list(changed)
    mixing = [changes.warning(pipeline.name, one) for one in found if changes.mixes(one)]
    return [*mixing, *columns_apart(pipeline, found, new)]


def columns_apart(pipeline: Pipeline, changed: Iterable[Change], new: Collection[str] = ()) -> list[str]:
    """Return how a table and the rows of a changed function differ in their columns, as far as a check has kept it.

    `new`: the queries whose first run this is. Their tables may be there, too.
    """
    queries = {one.query for one in changed if one.part.startswith("function of ")} | {*new}
    kept = kept_check(pipeline, key_of_check(pipeline)) if queries else None
    found = []
    for output in pipeline.outputs if kept else ():
        if pipeline.root_of(output).name not in queries or output.sink.write not in ("append", "upsert"):
            continue
        with suppress(OnlyonceError):  # such a table is refused elsewhere
            gives = StructType.fromJson(kept.schemas[output.name])  # type: ignore[union-attr]
            wanted, there, where = implementation(output.sink).types_there(pipeline, output, gives) or ({}, {}, "")
            made_by = pipeline.root_of(output) if output.is_result else output
            whose = f"{_at(made_by)}output {output.name}: "
            if added := _not_in(there, wanted) if there else []:
                rows = "rows of windows that are not computed again" if output.window else "the rows that are there"
                found.append(
                    f"{whose}{where} lacks {', '.join(added)}, which {made_by.made_by} gives: a run adds it, "
                    f"null in {rows}. If another column is meant, name it in the function: alias(…)"
                )
            if lost := _not_in(wanted, there):
                found.append(
                    f"{whose}{made_by.made_by} does not give {', '.join(lost)}, which {where} has: new rows have no "
                    "value there (null, or the table's default)"
                )
    return found


def _not_in(known: Iterable[str], names: Iterable[str]) -> list[str]:
    lower = {*map(str.lower, known)}
    return [name for name in names if name.lower() not in lower]


def not_begun(database: Database, pipeline: Pipeline, instance: str) -> set[str]:
    """Return the queries of a pipeline that have not begun: their next run is the first.

    Return none for a bounded run, which has tables of its own.
    """
    return (
        set() if instance != pipeline.name else {*pipeline.queries()} - Declarations(database).starts(instance).keys()
    )


def no_run(error: Refused) -> str:
    """Return the warning for what a run refuses before it reads anything."""
    behind = "\n" if "\n" in error.what else ". "  # the lines that differ
    return f"no run begins: {error.what}{behind}{error.hint[:1].upper()}{error.hint[1:]}"


def _simple(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


# The check itself.


log = structlog.get_logger()


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    asked_spark   whether Spark had to be asked
    wrong         output with a query of its own -> why its table, or the table of an output made from it, can't take
                  its rows, or why one of its lookups can't be read. The others can run.
    staged        output -> why its rows are stored before they are written
    """

    asked_spark: bool
    wrong: Mapping[str, BaseException]
    staged: Mapping[str, str]

    @property
    def away(self) -> dict[str, DatabaseAway]:
        """Return the outputs that are in `wrong` only because a database does not answer."""
        return {name: error for name, error in self.wrong.items() if isinstance(error, DatabaseAway)}


def kept_shapes(pipeline: Pipeline) -> Shapes | None:
    """Return what the functions give, if a check has kept it; None if Spark must be asked. Check what needs no Spark.

    Raise Refused for a function that does not exist.
    """
    for output in load.with_function(pipeline.outputs):
        for of_output in load.functions(output):
            functions.check_parameters(output, of_output)
        if output.reject:
            functions.check_reject(output, load.reject(output))
    for output in load.with_names(pipeline.outputs):
        check_names(pipeline, output)
    known = kept_check(pipeline, key_of_check(pipeline))
    if known is None:
        return None
    return Shapes({name: StructType.fromJson(one) for name, one in known.schemas.items()}, dict(known.staged))


def check_pipeline(pipeline: Pipeline, start_spark: Callable[[], SparkSession] | None) -> Checked:
    """Check one pipeline. Start Spark only if its functions have not passed a check before. Without `start_spark` leave
    out what needs Spark.

    Raise Refused for a mistake in its declaration or functions; what is wrong with a table is in the result.
    """
    wrong: dict[str, BaseException] = {}
    check_registry_client(pipeline)
    for one in each_input(pipeline):
        if one.source.is_topic:
            session.refuse_without_kafka(f"{declared_at(one.source)}pipeline {pipeline.name}: ")
    try:
        shapes, imported = kept_shapes(pipeline), True
    except Refused as error:
        if not resolve.needs_session(error):
            raise
        shapes, imported = None, False
    asks_spark = shapes is None
    if shapes is None:
        if start_spark is None:
            return Checked(True, lacking_here(pipeline), {})
        spark = start_spark()
        if not imported:  # what needs no Spark is checked now that the module can be imported
            kept_shapes(pipeline)
        shapes, wrong = _ask_spark(pipeline, spark)
    schemas = shapes.schemas
    outputs = [output for output in pipeline.outputs if output.name in schemas]
    for output in outputs:
        check_keys(output, schemas[output.name].names, pipeline.columns())
        check_column_names(output, schemas[output.name])
        check_rows(output, {field.name: field.dataType.simpleString() for field in schemas[output.name].fields})
    lacking = lacking_here(pipeline)
    able = {output.name: schemas[output.name] for output in outputs if pipeline.root_of(output).name not in lacking}
    wrong = wrong_tables(pipeline, able) | wrong | lacking
    if asks_spark and len(outputs) == len(pipeline.outputs):
        as_json = {name: schema.jsonValue() for name, schema in schemas.items()}
        keep_check(pipeline, key_of_check(pipeline), Kept(as_json, shapes.staged))
    return Checked(asks_spark, wrong, shapes.staged)


REGISTRY_CLIENT = "confluent_kafka.schema_registry"


def check_registry_client(pipeline: Pipeline) -> None:
    """Raise Refused if messages need a schema registry, and its client can't be imported: the driver asks it."""
    registered = [of for one in each_input(pipeline) for of in getattr(one.source, "registered", {}).values()]
    if registered:
        try:
            import_module(REGISTRY_CLIENT)
        except ModuleNotFoundError as error:  # the client, or one of the packages that its extra brings
            raise not_installed(REGISTRY_CLIENT, f"{declared_at(registered[0])}pipeline {pipeline.name}: ") from error


def lacking_here(pipeline: Pipeline) -> dict[str, BaseException]:
    """Return the outputs that lack a package, or a variable with a database's URL, as in `Checked.wrong`.

    It asks neither Spark nor the database.
    """
    wrong: dict[str, BaseException] = {}
    for output in pipeline.outputs:
        root, sink = pipeline.root_of(output), output.sink
        if not sink.is_external and sink.package and not is_installed(sink.package):
            at = f"{declared_at(sink)}output {output.name}: "
            wrong.setdefault(root.name, not_installed(sink.package, at, "nothing of this output was written"))
        named = [] if sink.is_external or sink.is_own else [(sink, f"output {output.name}: ", "a sink's")]
        named += [(one.table, "", f"the lookup {one.name}'s") for one in pipeline.lookups(root).values()]
        for declared, subject, whose in named:
            try:
                units.url_of(getattr(declared, "connection", None), whose, declared.database_kind)
            except FileNotFoundError:
                continue  # the platform was never started
            except Refused as error:
                what = f"{declared_at(declared) or declared_at(output)}{subject}{error.what}"
                if isinstance(package := wrong.get(root.name), Refused):
                    package.hint = f"{package.hint}; then {error.hint}"
                else:
                    wrong[root.name] = Refused(what, data=error.data, hint=error.hint)
    return wrong


def wrong_tables(pipeline: Pipeline, schemas: Mapping[str, StructType]) -> dict[str, BaseException]:
    """Return what is wrong with tables, as in `Checked.wrong`, with errors that onlyonce does not know. No JVM."""
    wrong: dict[str, BaseException] = {}
    for output in pipeline.outputs:
        if output.name in schemas:
            try:
                check_tables(pipeline, output, schemas[output.name])
            except Exception as error:
                wrong.setdefault(pipeline.root_of(output).name, translate(error))
    return wrong


def _ask_spark(pipeline: Pipeline, spark: SparkSession) -> tuple[Shapes, dict[str, BaseException]]:
    """Return what the functions give, and the lookups that can't be read, as in `Checked.wrong`."""
    from onlyonce.sources.values import parse

    check_schemas(pipeline)
    for name in pipeline.sources:
        parse.check_mapping(spark, pipeline.of_source(name))
    shapes, wrong = Shapes({}, {}), dict[str, BaseException]()
    for root in pipeline.roots():
        lookups = pipeline.lookups(root)
        try:
            seen = tables.as_of(spark, lookups, tables.newest(lookups, root)).frames
        except Exception as error:
            wrong[root.name] = translate(error)
            continue
        try:
            of_root = function_shapes(spark, pipeline, root, seen)
            shapes.schemas.update(of_root.schemas)
            shapes.staged.update(of_root.staged)
        except Exception as error:
            if isinstance(error, OnlyonceError) and not errors.raised_by_user(error):
                error.data = NOTHING if error.data == failures.WAITS else error.data
                raise
            # Not known to be a mistake in the code: what the function needs may be unreachable. Its output is run like
            # the others, and only it may fail.
            what = first_line(error)
            log.warning("not checked: the function raises an error of its own", output=root.name, what=what)
    return shapes, wrong
