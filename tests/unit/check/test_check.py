"""What a check decides without Spark: types, names, places, and what an error of a function says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType
from structlog.testing import capture_logs

from onlyonce import check, check_warnings, unexpected
from onlyonce.api import ddl
from onlyonce.api.messages import Avro
from onlyonce.api.pipeline import (
    Delta,
    Files,
    Iceberg,
    Kafka,
    KafkaSink,
    Lookup,
    MySQL,
    Output,
    Pipeline,
    Postgres,
    split_ddl,
)
from onlyonce.core import errors, failures
from onlyonce.core.changes import Change, Need
from onlyonce.core.errors import FunctionFails, Refused
from onlyonce.core.windows import Fixed
from onlyonce.engine.failures import translate
from onlyonce.run import stream

OUTPUT = Output(name="all", transform="m:f", sink=Delta(write="upsert", keys="shop"))
NESTED = StructType([StructField("a", ArrayType(MapType(StringType(), StructType([StructField("x y", LongType())]))))])
GOOD = (
    "id string, `odd (name), <too>` string, s struct<`x y`: int, `z:`: string>, b long",
    "a string, b decimal(10,2), c array<struct<x: int, y: map<string,array<long>>>>, d string NOT NULL COMMENT 'x, y'",
    "a interval day to second, `b` timestamp_ntz, c struct<a int, b:string>, d STRING COLLATE UTF8_LCASE",
)
BAD = {"n decimal(39,2)": "for example decimal(38,2)", "n array<decimal(5,6)>": "for example decimal(38,6)", "n varchar(20)": "did you mean 'string'?", "n money": "did you mean 'decimal(18,2)'?", "n itn": "did you mean 'int'?", "n text": "did you mean 'string'?", "a array<strin>": "did you mean 'string'?", "n": "n string",
       "a array": "array<…>", "a map<string>": "2 types", "a struct<b: lnog>": "did you mean 'long'?",
       "a long b string": "put a comma before 'b'", "a decimal(10,2) `b` int": "put a comma before 'b'", "a struct<b: int c: int>": "put a comma before 'c'"}  # fmt: skip


@pytest.mark.parametrize("schema", GOOD)
def test_types_that_spark_has_pass(schema: str) -> None:
    """Built ones, with what may stand behind them."""
    ddl.check("pipeline p", split_ddl(schema))


@pytest.mark.parametrize("schema", BAD)
def test_a_type_that_spark_has_not_is_refused_with_the_nearest(schema: str) -> None:
    """Also inside a built one."""
    with pytest.raises(Refused) as refused:
        ddl.check("pipeline p", split_ddl(schema))

    assert BAD[schema] in refused.value.hint


def test_one_name_is_a_tuple_of_one_and_a_list_is_one_of_all() -> None:
    """A text is no row of letters; a declaration of either is the same."""
    given: dict[str, object] = {"name": "p", "source": Files(), "schema": "id string, at timestamp", "event_time": "at"}
    one = Pipeline(**given, record_id="id", outputs=OUTPUT)  # type: ignore[arg-type]

    assert (one.record_id, one.outputs, OUTPUT.sink.keys) == (("id",), (OUTPUT,), ("shop",))
    assert one == Pipeline(**given, record_id=["id"], outputs=[OUTPUT])  # type: ignore[arg-type]


def test_keys_are_columns_of_the_rows() -> None:
    """The nearest column is named."""
    with pytest.raises(Refused, match="key 'shop'") as refused:
        check.check_keys(OUTPUT, ["shops", "n"])
    assert "did you mean 'shops'?" in refused.value.hint


@pytest.mark.parametrize(
    ("key", "columns", "hint"),
    [
        ("shop", ["window_start", "n"], "group by shop in the function too (it is a column of the records); or choose one of: window_start"),
        ("shop", ["id", "n"], "let the function keep shop (it is a column of the records); or choose one of: id, n"),
        ("zzz", ["window_start", "id", "n"], "choose one of: window_start, id"),
        ("m", ["window_start", "id", "mm"], "did you mean 'mm'? choose one of: window_start, id, mm"),
    ],
)  # fmt: skip
def test_key_that_is_no_column_is_answered_with_what_can_be_one(key: str, columns: list[str], hint: str) -> None:
    """With a window that is what the rows are grouped by, and no sum."""
    output = replace(OUTPUT, sink=Delta(write="upsert", keys=key))

    with pytest.raises(Refused) as refused:
        check.check_keys(output, columns, ["id", "shop"])

    assert refused.value.hint == hint


def test_an_error_of_rows_is_told_at_the_users_line() -> None:
    """By the place of an expression, or a worker's traceback; without a place of the user's it is not said to be
    theirs."""
    divided = (
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate. SQLSTATE: 22012\n== DataFrame ==\n"
        '"divide" was called from\n{}\n'
    )
    found = translate(RuntimeError(divided.format("/team/mine.py:7")))
    assert isinstance(found, FunctionFails)
    assert found.what == "/team/mine.py:7: a function of yours fails on its rows: Division by zero"
    ours = RuntimeError(divided.format(f"{errors.OURS}receive/loop.py:7"))
    assert translate(ours) is ours
    raised = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "
        '"/team/mine.py", line 3, in f\nValueError: no\n'
    )
    assert str(translate(RuntimeError(raised))).startswith(
        "/team/mine.py:3: a function of yours fails on its rows: ValueError: no"
    )


def test_an_error_of_rows_names_the_function_and_the_command_that_continues() -> None:
    """One function by its name; several as one of them. An error that names its function already stays."""
    found = failures.fails("/team/mine.py:3", "KeyError: 'x'")
    named = failures.fails_in("shop", "hourly", ["mine:hourly"], found)
    assert named.what == "/team/mine.py:3: output hourly of shop: mine:hourly fails on its rows: KeyError: 'x'"
    assert "events" in named.data
    assert "onlyonce plan shop --yes" in named.hint
    assert failures.fails_in("shop", "hourly", ["mine:a", "mine:b"], found).what.startswith(
        "/team/mine.py:3: output hourly of shop: one of mine:a, mine:b fails on its rows"
    )
    assert failures.fails_in("shop", "daily", ["mine:daily"], named) is named


def test_our_own_code_is_ours_where_a_link_leads_to_it(tmp_path: Path) -> None:
    """As in a home or an environment behind a link: the lines of an error are those of the path that Python came by."""
    (tmp_path / "onlyonce").symlink_to(Path(errors.OURS))
    asked = (
        "from onlyonce.core import errors; from onlyonce.api import load; print(errors.__file__, "
        "errors.is_users(load.__file__))"
    )
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "onlyonce" / "core" / "errors.py"), "False"]


def test_a_missing_column_is_named_with_the_nearest() -> None:
    """Of what Spark says is there, or as an attribute of a frame."""
    spark = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `cent` cannot be resolved. Did you mean one of "
        "the following? [`cents`, `id`]."
    )
    for text in (spark, "'DataFrame' object has no attribute 'cent'"):
        found = failures.error_of_code("output all: m:f", ValueError(text), ["id", "cents"], "/team/mine.py:3")
        assert found.what == "/team/mine.py:3: output all: m:f asks for the column 'cent', which does not exist"
        assert found.hint.startswith("did you mean 'cents'?")

    dropped = spark.replace("`cent`", "`oo_window`")
    found = failures.error_of_code("output all: m:f", ValueError(dropped), ["id", "cents", "oo_window"], None)
    assert found.what.endswith("'oo_window', which an earlier step of the function has left out; there are: cents, id")
    assert found.hint == "name oo_window in that step, too (select, groupBy)"
    far = failures.error_of_code("output all: m:f", ValueError(spark.replace("`cent`", "`amount`")), ["id"], None)
    assert far.hint == "choose one of: cents, id"


def test_a_window_as_a_key_is_two_columns() -> None:
    """The hint names both."""
    output = replace(OUTPUT, sink=Delta(write="upsert", keys=("oo_window", "shop")))
    with pytest.raises(Refused) as told:
        check.check_keys(output, ["window_start", "window_end", "shop"])

    assert told.value.hint == "oo_window is written as window_start and window_end: name these in its place"


@pytest.mark.parametrize(
    "fail, what, hint",
    [
        (lambda recods: records, "NameError: name 'records' is not defined", "did you mean 'recods'? fix the"),  # type: ignore[name-defined] # noqa: F821
        (lambda name: name.uper(), "AttributeError: 'str' object has no attribute 'uper'", "did you mean 'upper'? fix the"),
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero", "fix the"),
    ],
    ids=["a name", "an attribute", "another error"],
)  # fmt: skip
def test_misspelt_name_in_a_function_gets_the_nearest(fail: Callable[[str], Any], what: str, hint: str) -> None:
    """The names are those of the line that fails, and those of the object."""
    with pytest.raises((NameError, AttributeError, ArithmeticError)) as error:
        fail("shop")

    found = failures.error_of_code("output all: m:f", error.value, ["id"])

    assert found.what.endswith(f"output all: m:f fails: {what}")
    assert found.hint.startswith(hint)


def test_action_in_a_function_is_named() -> None:
    """A stream's rows can't be asked for, whatever the action."""
    text = "Queries with streaming sources must be executed with writeStream.start(), or from a streaming table"

    found = failures.error_of_code("output all: m:f", ValueError(text), ["id"])

    assert found.what == "output all: m:f asks for its rows"
    assert "leave out collect()" in found.hint


def test_column_that_no_delta_table_can_have_is_refused() -> None:
    """At any depth, and for Delta only."""
    for column, rows in {"count(1)": StructType([StructField("count(1)", LongType())]), "x y": NESTED}.items():
        with pytest.raises(Refused, match=re.escape(f"gives the column {column!r}, and a Delta table can't have")):
            check.check_column_names(OUTPUT, rows)
        check.check_column_names(replace(OUTPUT, sink=Postgres(table="results.a")), rows)
    check.check_column_names(OUTPUT, StructType([StructField("größe-1.5%", LongType())]))


def test_check_warns_of_an_inbox_that_is_not_there(tmp_path: Path) -> None:
    """At the source, with the command that makes it; the home's own inbox is made by a run."""
    shop = Pipeline(
        name="p", source=Files(inbox=str(tmp_path / "inbx")), schema="id string, at timestamp", record_id="id",
        event_time="at", outputs=OUTPUT,
    )  # fmt: skip

    [warning] = check_warnings.missing_inboxes(shop)

    assert f"the inbox of p, {tmp_path}/inbx, is not a folder here" in warning
    assert f"mkdir -p {tmp_path}/inbx" in warning
    assert check_warnings.missing_inboxes(replace(shop, source=Files(inbox=str(tmp_path)))) == []
    assert check_warnings.missing_inboxes(replace(shop, source=Files())) == []


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        (Files(), "string", "or declare it as a timestamp: formats={'at': …} then names another form"),
        (Files(format="parquet"), "string", "Name another column if it holds no times"),
        (Kafka(topic="t", servers="here:9092", headers="at"), "string", "Name another column if it holds no times"),
        (Files(), "long", "is a whole number, read as seconds since 1970. Name another column if it holds no times"),
        (Files(), "timestamp", None),
        (Files(), "date", None),
    ],
)
def test_check_warns_of_an_event_time_that_may_be_none(source: Any, kind: str, told: str | None) -> None:
    """With the form to declare where a source reads strings as times."""
    shop = Pipeline(
        name="p", source=source, schema=f"id string, at {kind}", record_id="id", event_time="at", outputs=OUTPUT
    )

    found = check_warnings.doubtful_event_times(shop)

    assert len(found) == (told is not None)
    for warning in found:
        assert "pipeline p: event_time='at' is a" in warning
        assert ("a record is invalid if it is not ISO 8601" in warning) == (kind == "string")
        assert warning.endswith(str(told))


def test_check_says_which_brokers_it_does_not_ask() -> None:
    """Of topics, also of one of several sources; of files there are none."""
    kafka = Kafka(topic="t", servers="here:9092")
    shop = Pipeline(
        name="p", source=kafka, schema="id string, at timestamp", record_id="id", event_time="at", outputs=OUTPUT
    )

    assert check_warnings.unasked_brokers(shop) == ["Kafka at here:9092"]
    assert check_warnings.unasked_brokers(replace(shop, source=Files())) == []


@pytest.mark.parametrize(
    ("sink", "written"),
    [
        (Postgres(table="public.shop-per minute"), 'public."shop-per minute"'),
        (Postgres(table="Sales.order"), '"Sales"."order"'),
        (Postgres(table="results.per_shop"), None),
        (MySQL(table="per shop", connection="C"), "`per shop`"),
        (MySQL(table="PerShop", connection="C"), None),
        (Delta(table="sales.per-shop"), "sales.`per-shop`"),
        (Delta(path="a b"), None),
        (Iceberg(table="sales.per_shop"), None),
    ],
    ids=str,
)
def test_check_shows_a_name_that_sql_takes_only_in_quotes(sink: Any, written: str | None) -> None:
    """As a query must write it: capitals, blanks, words of SQL. Outputs quote each name, so it is no mistake."""
    shop = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="o", transform="m:f", sink=sink),
    )  # fmt: skip

    found = check_warnings.names_in_quotes(shop)

    assert [f"queries as {written}, or" in line for line in found] == ([True] if written else [])


def test_check_names_the_calls_of_a_clock_in_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At their lines, unless the rows are staged, or a batch may be written twice anyway."""
    (tmp_path / "with_a_clock.py").write_text(
        "from datetime import datetime\n\n\ndef f(rows):\n    return rows.filter(str(datetime.now()) > '')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    output = replace(OUTPUT, transform="with_a_clock:f")
    shop = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=output
    )

    [line] = check_warnings.changing_values(shop, [])

    assert line.startswith(f"{tmp_path / 'with_a_clock.py'}:5: output all: datetime.now() gives the time")
    assert "oo_ingestion_time; or declare stable_input=True" in line
    with capture_logs() as logged:
        stream._warn(shop, [], [])  # a run
    assert [one["event"] for one in logged] == [line]
    assert check_warnings.changing_values(shop, ["all"]) == []
    [line] = check_warnings.changing_values(replace(shop, outputs=replace(output, reject="with_a_clock:f")), ["all"])
    assert line.endswith("or oo_ingestion_time")
    assert check_warnings.changing_values(replace(shop, outputs=replace(output, stable_input=True)), []) == []
    assert (
        check_warnings.changing_values(replace(shop, mode="at_least_once", outputs=replace(output, sink=Delta())), [])
        == []
    )


def test_columns_that_a_changed_function_gives_no_more_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And columns that a run will add. Only if the function has changed since the last run, or before the first one: a
    table may have columns of its owner.
    """
    kept = check.Kept({"all": StructType([StructField("shop", StringType())]).jsonValue()}, {})
    there = SimpleNamespace(types_there=lambda *_: ({"shop": "string"}, {"Shop": "string", "sum": "bigint"}, "a.b"))
    monkeypatch.setattr(check, "key_of_check", lambda _: "key")
    monkeypatch.setattr(check, "kept_check", lambda *_: kept)
    monkeypatch.setattr(check, "implementation", lambda _: there)
    monkeypatch.setattr(check, "_at", lambda output: "f.py:1: " if output.functions else "")
    shop = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=OUTPUT
    )
    lost = "m:f does not give sum, which a.b has: new rows have no value there (null, or the table's default)"
    function = Change("all", "function of output all", None, None, Need.NOTHING, "why", "a diff")

    assert check.warnings_of_changes(shop, [function]) == [f"f.py:1: output all: {lost}"]
    assert check.warnings_of_changes(shop, [replace(function, part="late of output all")]) == []
    there.types_there = lambda *_: ({"shop": "string", "n": "bigint"}, {"shop": "string", "sum": "bigint"}, "a.b")
    assert check.warnings_of_changes(shop, [], ["receive", "all"]) == [
        "f.py:1: output all: a.b lacks n, which m:f gives: a run adds it, null in the rows that are there. If "
        "another column is meant, name it in the function: alias(…)",
        f"f.py:1: output all: {lost}",
    ]
    made = replace(OUTPUT, name="made", transform="", from_output="all", sink=Delta())
    kept.schemas["made"] = kept.schemas["all"]
    found = check.warnings_of_changes(replace(shop, outputs=(OUTPUT, made)), [], ["all"])
    assert f"f.py:1: output made: {lost}" in found
    there.types_there = lambda *_: None
    assert check.warnings_of_changes(shop, [], ["all"]) == []


def test_check_names_outputs_that_leave_out_how_long_a_window_waits() -> None:
    """Zero as it is declared, and late rows that have a way into their windows, need no word."""

    def told(**options: Any) -> list[str]:
        output = Output(name="o", transform="m:f", sink=Delta(), **options)
        return check_warnings.without_delay(
            Pipeline(
                name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
                outputs=output,
            )
        )  # fmt: skip

    hour = Fixed(timedelta(hours=1))
    [line] = told(window=hour)
    assert "output o has no watermark_delay: a window closes with the first record that is past its end" in line
    assert told() == told(window=hour, watermark_delay=timedelta(0)) == told(window=hour, late="backfill") == []


def test_a_missing_option_is_named_without_pythons_words() -> None:
    """With the declaration's name."""
    with pytest.raises(Refused, match=r"^Pipeline 'p' lacks `record_id` and `event_time`") as refused:
        Pipeline(name="p", source=Files(), schema="id string, at timestamp", outputs=OUTPUT)  # type: ignore[call-arg]

    assert refused.value.hint.startswith("add record_id=…, which has no default: the columns whose values identify")


def test_value_without_its_options_name_is_refused() -> None:
    with pytest.raises(Refused, match=r"^Delta: a value without the name of its option: 'append'") as refused:
        Delta("append")  # type: ignore[misc]

    assert refused.value.hint == "write the name of its option before it, such as path=…"


def test_check_warns_of_what_a_delivery_would_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable that is not set, and the package with its extra; nothing where both are there."""
    sink = KafkaSink(topic="sales", connection="MINE_BROKERS")
    made = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=(Output(name="sent", transform="m:f", sink=sink), OUTPUT),
    )  # fmt: skip
    monkeypatch.delenv("MINE_BROKERS", raising=False)
    monkeypatch.setattr(unexpected, "find_spec", lambda _: None)

    [(name, [unset, missing])] = check_warnings.undeliverable(made).items()

    assert name == "sent"
    assert "output sent: the variable MINE_BROKERS is not set: its rows wait in the outbox" in unset
    assert "confluent_kafka is not installed (pip install 'onlyonce-pipelines[kafka]')" in missing
    monkeypatch.setattr(unexpected, "find_spec", lambda _: object())
    monkeypatch.setenv("MINE_BROKERS", "")
    assert "the variable MINE_BROKERS is set, but empty: its rows" in check_warnings.undeliverable(made)["sent"][0]
    monkeypatch.setenv("MINE_BROKERS", "here:9092")
    assert check_warnings.undeliverable(made) == {}


@pytest.mark.parametrize("missing", [None, "confluent_kafka", "authlib"])
def test_missing_client_of_a_schema_registry_is_refused_before_spark(
    monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    """With the extra of a registry, which brings more than that of Kafka. Plain messages need neither."""
    options: dict[str, Any] = {"record_id": "id", "event_time": "at", "outputs": (OUTPUT,)}
    source = Kafka(topic="t", servers="h:9092", value=Avro(registry="http://r:8081"))
    made = Pipeline(name="p", source=source, schema="id string, at timestamp, schema_id int", **options)
    plain = Pipeline(name="p", source=Kafka(topic="t", servers="h:9092"), schema="id string, at timestamp", **options)

    def importing(_: str) -> None:
        raise ModuleNotFoundError(name=missing)

    if missing:
        monkeypatch.setattr(check, "import_module", importing)

    for pipeline, lacks in ((made, missing is not None), (plain, False)):
        with pytest.raises(Refused) as refused:  # the function of OUTPUT does not exist
            check.check_pipeline(pipeline, None)
        what = "pipeline p: the package confluent_kafka.schema_registry is not installed here"
        assert (what in refused.value.what) == lacks
        assert (refused.value.hint == "pip install 'onlyonce-pipelines[registry]'") == lacks


def test_topic_is_refused_at_its_line_before_spark_if_spark_lacks_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By `check`, whatever the sink is: a run found it when it asked for the topic, as an error of Python's."""
    jars, file = tmp_path / "jars", tmp_path / "mine.py"
    jars.mkdir()
    (jars / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    file.write_text(
        "from onlyonce import FileSink, Kafka, Output, Pipeline\n\nPIPELINES = [Pipeline(\n"
        "    name='mine', schema='id string, at timestamp', record_id='id', event_time='at',\n"
        "    source=Kafka(topic='t', servers='h:9092'),\n"
        "    outputs=Output(name='all', transform='m:f', sink=FileSink()),\n)]\n"
    )
    command = [sys.executable, "-c", "from onlyonce.cli import app; app()", "check", "--pipelines", str(file)]
    monkeypatch.setenv("ONLYONCE_JARS", str(jars))
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    what, data, hint = done.stderr.splitlines()[-3:]
    assert (done.returncode, data) == (64, "  data: nothing was read or written")
    assert what == f"{file}:5: pipeline mine: Spark lacks its package for Kafka, spark-sql-kafka-0-10"
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:" in hint


def test_lookup_without_its_variable_is_found_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINE_DATABASE", raising=False)
    shops = Lookup(name="shops", keys="shop", table=Postgres(table="public.shops", connection="MINE_DATABASE"))
    made = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=(OUTPUT, Output(name="named", transform="m:f", sink=Delta(), lookups=(shops,))),
    )  # fmt: skip

    [(output, error)] = check.lacking_here(made).items()

    assert output == "named"
    assert isinstance(error, Refused)
    assert error.what.endswith("the environment variable MINE_DATABASE of the lookup shops's database is not set")
    monkeypatch.setenv("MINE_DATABASE", "")
    assert str(check.lacking_here(made)["named"]).splitlines()[0].endswith("database is set, but empty")


@pytest.mark.parametrize(
    "sink, extra", [(MySQL(table="t", connection="MINE"), "mysql"), (Iceberg(table="a.t"), "iceberg")]
)
def test_sink_without_its_package_is_found_without_spark(
    monkeypatch: pytest.MonkeyPatch, sink: MySQL | Iceberg, extra: str
) -> None:
    """At its own line, before any row is read, and for its output alone."""
    made = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=(OUTPUT, Output(name="there", transform="m:f", sink=sink)),
    )  # fmt: skip
    monkeypatch.setenv("MINE", "mysql://me:mine@here/mine")
    assert check.lacking_here(made) == {}
    monkeypatch.setattr(unexpected, "find_spec", lambda _: None)

    [(output, error)] = check.lacking_here(made).items()

    assert output == "there"
    assert isinstance(error, Refused)
    assert re.fullmatch(rf"{__file__}:\d+: output there: the package py\w+ is not installed here", error.what)
    assert error.hint == f"pip install 'onlyonce-pipelines[{extra}]'"


def test_table_of_an_output_without_its_package_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lacking is known before."""
    made = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=(OUTPUT, Output(name="there", transform="m:f", sink=MySQL(table="t", connection="MINE"))),
    )  # fmt: skip
    rows, asked = StructType([StructField("shop", StringType())]), list[str]()
    shapes = check.Shapes(dict.fromkeys((OUTPUT.name, "there"), rows), {})
    monkeypatch.setenv("MINE", "mysql://me:mine@here/mine")
    monkeypatch.setattr(unexpected, "find_spec", lambda _: None)
    monkeypatch.setattr(check, "kept_shapes", lambda _: shapes)
    monkeypatch.setattr(check, "check_tables", lambda _, output, __: asked.append(output.name))

    assert check.check_pipeline(made, None).wrong.keys() == {"there"}
    assert asked == [OUTPUT.name]


@pytest.mark.parametrize(
    "sink, url, what, hint",
    [
        (Postgres(table="a.t", connection="MINE"), "mysql://me:mine@here/mine", "MySQL", "for MySQL declare MySQL(…)"),
        (MySQL(table="t", connection="MINE"), "postgresql://me:mine@here/mine", "PostgreSQL", "declare Postgres(…)"),
    ],
)
def test_database_of_another_kind_is_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, sink: Postgres | MySQL, url: str, what: str, hint: str
) -> None:
    monkeypatch.setenv("MINE", url)
    made = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="there", transform="m:f", sink=sink),
    )  # fmt: skip

    [error] = check.lacking_here(made).values()

    assert isinstance(error, Refused)
    assert error.what.endswith(f"the environment variable MINE of a sink's database has a URL of {what}")
    assert hint in error.hint
    assert "mine@" not in str(error)


def test_module_that_needs_a_session_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of Spark is made as the module is imported: it is no mistake, and other errors of an import are."""
    (tmp_path / "needs_spark.py").write_text(
        'from pyspark.sql import functions as F\n@F.udf("long")\ndef twice(n):\n    return 2 * n\n'
        "def f(rows):\n    return rows\n"
    )
    (tmp_path / "is_wrong.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shop, wrong = (
        Pipeline(
            name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
            outputs=Output(name="o", transform=f"{module}:f", sink=Delta()),
        ) for module in ("needs_spark", "is_wrong")
    )  # fmt: skip

    def start() -> Any:
        raise KeyboardInterrupt

    assert check.check_pipeline(shop, None).asked_spark
    with pytest.raises(KeyboardInterrupt):
        check.check_pipeline(shop, start)
    with pytest.raises(Refused, match=r"is_wrong\.py:1: .*ZeroDivisionError"):
        check.check_pipeline(wrong, start)
    (tmp_path / "is_wrong.py").write_text("raise RuntimeError('no session of theirs')\n")
    with pytest.raises(Refused, match=r"is_wrong\.py:1: .*RuntimeError: no session of theirs"):
        check.check_pipeline(wrong, start)
    (tmp_path / "is_wrong.py").write_text(
        "from pyspark.sql import functions as F\nID = F.col('id')\ndef f(rows):\n    return rows\n"
    )
    assert check.check_pipeline(wrong, None).asked_spark
